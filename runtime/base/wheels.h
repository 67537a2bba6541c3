// Where this build found the vendor's Python wheels. It is in the programs of the build folder and
// in nothing that is installed, which is why it is a library of its own (attn_wheels).
#pragma once

#include <string_view>

namespace attn {

// The folder that holds `nvidia`; empty in what is installed.
std::string_view wheels_folder();

}  // namespace attn
