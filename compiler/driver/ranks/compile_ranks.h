// The plans of all parts of an attention that is divided among GPUs, and what each rank does with
// them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/driver/driver.h"
#include "compiler/driver/ranks/shard.h"
#include "runtime/plan/bundle.h"
#include "runtime/ranks/program.h"

namespace attn::driver {

struct CompiledFamily {
  std::vector<Compiled> plans;  // all different
  ranks::Division division;     // without exchanges
  std::string kernels;          // the cubin of what moves rows
};

struct RanksOptions {
  CompileOptions how{};
  bool both = false;   // directions, else that of `how`
  bool split = false;  // a file for each rank, which may have more parts together
  // Called before a part is compiled, with its number, the number of parts, and its name.
  std::function<void(std::size_t part, std::size_t parts, const std::string& name)> observer{};
};

// Compiles each part that differs from the others. Errors: those of compile, with the part before
// the message; those of nvrtc::compile_kernel; without `split`, invalid_argument if there are too
// many for one file.
Result<CompiledFamily> compile_ranks(const ir::Attention& attention, const support::Source& source,
                                     const sema::Bindings& bindings, const Sharded& sharded,
                                     const RanksOptions& options);

// Writes one file, or with `split` one for each rank: PATH.0 and so on.
Status save(const CompiledFamily& family, const std::string& path, bool split);
// The file of a rank, with `split`.
std::string file_of_rank(const std::string& path, std::size_t rank);

}  // namespace attn::driver
