// The strategies to compute an attention (strategies.def). None is right for every attention, cuDNN
// version and GPU: the one with the lowest predicted time (passes/strategy/cost.h) that can be
// built is taken.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/planner/subject.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::planner {

struct Lowered {
  plan::Program program;
  double predicted_ms = 0;
  std::vector<std::string> parts{};  // of the mask (passes/strategy/partition.h), to be printed
};

struct Strategy {
  enum class Kind : std::uint8_t { primary, alternative, slow };

  std::string_view name;
  std::string_view what;  // one line, to be printed
  Kind kind = Kind::primary;

  // Milliseconds that it takes at least, without lowering. Errors: `unsupported`, with the place
  // and what would work, when the strategy cannot express the attention; any other error holds for
  // every strategy.
  Result<double> (*bound)(Subject& subject) = nullptr;
  // Errors: the same. The predicted time is not below the bound.
  Result<Lowered> (*lower)(Subject& subject) = nullptr;
};

inline constexpr std::string_view kAnyLowering = "auto";
inline constexpr std::string_view kAnyOrSlow = "auto or slow";

// In the table's order: those that are not slow for kAnyLowering, all for kAnyOrSlow, the one of
// this name, or none. They live as long as the program.
std::span<const Strategy> strategies(std::string_view name = kAnyLowering);

// What `strategies` takes: "auto", then each name.
std::vector<std::string> lowering_names();

namespace strategy {
#define ATTN_STRATEGY(name, kind, what)    \
  namespace name {                         \
  Result<double> bound(Subject& subject);  \
  Result<Lowered> lower(Subject& subject); \
  }
#include "compiler/planner/strategies.def"
}  // namespace strategy

}  // namespace attn::planner
