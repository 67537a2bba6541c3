// `attnc compile --ranks N`: the plans of all parts, and what each rank does with them.
#pragma once

#include <string>
#include <vector>

#include "compiler/driver/driver.h"
#include "runtime/plan/bundle.h"
#include "runtime/ranks/program.h"
#include "tools/ranks.h"
#include "tools/report.h"

namespace attn::tools {

struct CompiledFamily {
  std::vector<driver::Compiled> plans;  // all different
  ranks::Division division;             // without exchanges
  std::string kernels;                  // the cubin of what moves rows
};

// Compiles each part that differs from the others, in both directions if `both`, else in that of
// `how`. Errors: those of driver::compile, with the part before the message; those of
// nvrtc::compile_kernel; without `split`, invalid_argument if there are too many for one file.
Result<CompiledFamily> compile_ranks(const Spec& spec, const Sharded& sharded,
                                     const driver::CompileOptions& how, bool both, bool split);

// Writes one file, or with `split` one for each rank: PATH.0 and so on.
Status save(const CompiledFamily& family, const std::string& path, bool split);

std::string to_text(const CompiledFamily& family, const std::string& path, bool split);
// {"plan": path}, or with `split` {"files": [paths by rank]}, and "ranks" and "plans".
Json to_json(const CompiledFamily& family, const std::string& path, bool split);

// The ranks of a plan file, as a table.
std::string ranks_text(const ranks::Division& division, const std::string& path);

}  // namespace attn::tools
