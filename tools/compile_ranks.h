// `attnc compile --ranks N`: what is said of the plans of all parts, and of what each rank does
// with them (compiler/driver/ranks/compile_ranks.h).
#pragma once

#include <string>

#include "compiler/driver/ranks/compile_ranks.h"
#include "runtime/ranks/program.h"
#include "tools/report.h"

namespace attn::tools {

using driver::CompiledFamily;

std::string to_text(const CompiledFamily& family, const std::string& path, bool split);
// {"plan": path}, or with `split` {"files": [paths by rank]}, and "ranks" and "plans".
Json to_json(const CompiledFamily& family, const std::string& path, bool split);

// The ranks of a plan file, as a table.
std::string ranks_text(const ranks::Division& division, const std::string& path);

}  // namespace attn::tools
