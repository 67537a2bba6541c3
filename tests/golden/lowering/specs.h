// The specs of a folder, lowered.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::testing {

// The .attn files of a folder relative to the source root, by name.
std::vector<std::filesystem::path> spec_files(const std::string& folder);

// The specs that tests/conformance/not_lowered.txt says are refused before cuDNN is asked.
std::set<std::string> not_lowered();

// By driver::lower's `lowering`. A spec with errors is `invalid_spec`.
Result<plan::Program> try_lower(const std::filesystem::path& path,
                                std::string_view lowering = "auto",
                                plan::Direction direction = plan::Direction::forward);

// Reports a GoogleTest failure and returns an empty program when the spec does not lower.
plan::Program lowered_spec(const std::filesystem::path& path);

}  // namespace attn::testing
