// Text output of `attnc inspect`.
#pragma once

#include <string>

#include "runtime/plan/bundle.h"

namespace attn::tools {

// Describes one plan of the bundle: its spec and target, its tensors and its steps. Names from the
// file are escaped with shown(). `path` is the path of the file.
std::string inspect_text(const std::string& path, const plan::Bundle& bundle,
                         const plan::Plan& plan);

}  // namespace attn::tools
