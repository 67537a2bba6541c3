// The folder of NVIDIA's Python wheels that this build was configured with. Linked into programs of
// the build folder only, never into installed ones, so it is a separate library (attn_wheels).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

// The folder that contains `nvidia`; empty in installed programs.
std::string_view wheels_folder();

// Adds the folder of a wheel of NVIDIA ("cudnn"), unless this is an installed program.
void append_wheel(std::vector<std::filesystem::path>& folders, const std::string& name);

}  // namespace attn
