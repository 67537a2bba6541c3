// The folder of NVIDIA's Python wheels that this build was configured with. Linked into programs of
// the build folder only, never into installed ones, so it is a separate library (attn_wheels).
#pragma once

#include <string_view>

namespace attn {

// The folder that contains `nvidia`; empty in installed programs.
std::string_view wheels_folder();

}  // namespace attn
