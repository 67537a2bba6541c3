// The specs that are shipped with attnc, which commands know by name.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace attn::tools {

// The specs of the installation that the program belongs to, or of its source tree: sorted, without
// ".attn".
std::vector<std::string> standard_spec_names();

// The file of the standard spec that "causal" or "causal.attn" names.
std::optional<std::string> standard_spec(const std::string& name);

// The file that `path` means: itself, if there is one or it has a folder; for "causal", causal.attn
// in the working directory; then the standard spec. `path` itself if it is none of these.
std::string resolved_spec(const std::string& path);

}  // namespace attn::tools
