// The specs of a folder, lowered.
#pragma once

#include <filesystem>
#include <vector>

#include "runtime/plan/program.h"

namespace attn::testing {

// The .attn files of a folder relative to the source root, by name.
std::vector<std::filesystem::path> spec_files(const std::string& folder);

// Reports a GoogleTest failure and returns an empty program when the spec does not lower.
plan::Program lowered_spec(const std::filesystem::path& path);

}  // namespace attn::testing
