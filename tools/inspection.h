// What `attnc inspect` prints.
#pragma once

#include <string>

#include "runtime/plan/bundle.h"

namespace attn::tools {

// Of one of the bundle's plans: what it was made from and for, its tensors and its steps. Names
// come out of the file and are written by shown(). `path` is that of the file.
std::string inspect_text(const std::string& path, const plan::Bundle& bundle,
                         const plan::Plan& plan);

}  // namespace attn::tools
