// Applies the fixes that diagnostics carry.
#pragma once

#include <string>
#include <vector>

#include "compiler/diag/diagnostics.h"

namespace attn::tools {

struct AppliedFix {
  std::string title;     // "write `window`"
  support::Place place;  // of the diagnostic, in the text before
};

struct Fixed {
  std::string text;
  std::vector<AppliedFix> applied;
};

// The text of the sink's source with the fix of each diagnostic that has just one: whole fixes
// whose edits are all in this source, and overlap none of those applied before.
Fixed apply_fixes(const diag::Sink& sink);

}  // namespace attn::tools
