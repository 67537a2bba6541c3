// The table of `attnc support --engines`: which engine is taken for a spec on each target, forward
// and backward.
#pragma once

#include <string>
#include <vector>

#include "compiler/driver/support.h"
#include "compiler/support/paint.h"
#include "tools/report.h"

namespace attn::tools {

// What a target does with a spec.
struct BothWays {
  driver::Verdict forward;
  driver::Verdict backward;  // of a training pair; its direction is the one that is refused
};

struct SpecEngines {
  std::string spec;
  std::string file;
  std::vector<BothWays> targets;
};

// The verdicts of specs on the targets with these names. Targets that agree on all specs share a
// column. A cell is the engine that is taken ("native"), those of both directions if they differ
// ("cudnn / native"), or the code of a refusal ("r2"), of which the list below the table says the
// reason, and for which specs it was given. Reasons that differ in numbers alone are one.
struct EnginesTable {
  std::vector<std::string> targets;
  std::vector<SpecEngines> rows;

  std::string to_text(support::Paint paint) const;
  std::string to_markdown() const;
  // {"specs": [{"spec", "file", "targets": [{"target", "forward": .., "backward": ..}]}]}, of which
  // a direction is {"outcome": "served", "engine", "strategy"} or {"outcome", "reason"}.
  Json to_json() const;
  // The largest of all refusals and failures.
  int exit_code() const;
};

}  // namespace attn::tools
