// What planning decides by. Every pass, strategy and lowering that decides something receives it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "compiler/target/deadline.h"
#include "compiler/target/gpu.h"
#include "compiler/target/rewrites.h"
#include "runtime/plan/program.h"

namespace attn::ir {
struct Attention;
}
namespace attn::masks {
class MaskAnalyses;
}

namespace attn::target {

// A rewrite of the IR that was made (rewrite/pass.h).
struct PassRun {
  std::string_view pass;
  double milliseconds = 0;
  const ir::Attention& after;
};
using PassObserver = std::function<void(const PassRun& run)>;

// A part of the analysis of masks that was computed (masks/mask_analysis.h).
struct AnalysisRun {
  std::string_view part;
  const ir::Attention& of;
};
using AnalysisObserver = std::function<void(const AnalysisRun& run)>;

struct Context {
  Gpu gpu{};                       // what predictions are of
  std::int64_t cudnn_version = 0;  // cudnnGetVersion(), e.g. 91900; 0: not known yet
  plan::Direction direction = plan::Direction::forward;
  Rewrites rewrites{};
  const PassObserver* observer = nullptr;  // called after every rewrite; outlives the context
  // The analyses of masks made so far, shared by all who have the context; outlives it. Null: each
  // is made where it is needed.
  masks::MaskAnalyses* analyses = nullptr;
  std::chrono::nanoseconds timeout{0};  // of each build (deadline.h); 0: none
  // That of the builds of planner::Search, which end with that of the context they get; null
  // elsewhere.
  std::shared_ptr<Deadline> deadline{};

  bool backward() const { return direction == plan::Direction::backward; }
};

// The same for the other direction.
inline Context in_direction(Context context, plan::Direction direction) {
  context.direction = direction;
  return context;
}

}  // namespace attn::target
