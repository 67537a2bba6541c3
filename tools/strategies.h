// The strategies that were considered for a plan: what `attnc explain` and `attnc report` list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/driver/driver.h"
#include "compiler/support/paint.h"
#include "tools/report.h"

namespace attn::tools {

struct Considered {
  std::string strategy;
  std::string engine;       // empty if this attnc does not know the strategy
  std::string what;         // one line; empty as well
  bool chosen = false;      // the first one
  double predicted_ms = 0;  // 0: unknown. Of what was not lowered, a lower bound.
  std::optional<double> measured_ms{};
  // Bytes without bound tensors; at least these, if cuDNN's own are not known: `built` is false.
  std::optional<std::int64_t> workspace_bytes{};
  bool built = false;
  std::string refused{};  // why it could not be used
  bool failed = false;    // by what may not fail again, such as a worker that ran out of time
};

// The chosen one, then those that could be used, the fastest first, then those refused. Of a plan
// file, those that the plan has.
std::vector<Considered> considered(const driver::Compiled& compiled);

// A table, one line each. Reasons that do not fit in it are notes below, numbered and wrapped.
// Empty if there are none.
std::string strategies_text(const std::vector<Considered>& all, support::Paint paint = {});

// [{"strategy": "native", "engine": "native", "verdict": "chosen", "predicted_ms": 0.8,
//   "workspace_bytes": 256}, .., {.., "verdict": "refused", "reason": ".."}]
// The other verdicts are "slower", "no faster" (it takes as long), "not taken" and "failed".
// Unknown numbers are absent, and so are workspaces without cuDNN's own part.
Json to_json(const std::vector<Considered>& all);

}  // namespace attn::tools
