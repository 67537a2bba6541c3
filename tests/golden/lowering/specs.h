// Lowers the specs of a folder.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::testing {

// The .attn files of a folder (relative to the source root), sorted by name.
std::vector<std::filesystem::path> spec_files(const std::string& folder);

// The specs that lowering refuses for an H200, by tests/conformance/not_lowered.txt.
std::set<std::string> not_lowered();

// Lowers with driver::lower. Errors: invalid_spec for a spec with errors.
Result<plan::Program> try_lower(const std::filesystem::path& path,
                                std::string_view lowering = "cudnn",
                                plan::Direction direction = plan::Direction::forward);

// Reports a GoogleTest failure and returns an empty program if the spec does not lower.
plan::Program lowered_spec(const std::filesystem::path& path);

}  // namespace attn::testing
