// Copies of tensors that cuDNN's kernels cannot read or write in place. Copies of outputs are
// copied back. Tensors that need a copy:
//   - head dimensions that are not multiples of 8, which cuDNN refuses: padded with zeros, which
//     change no score
//   - rows whose elements are not contiguous, which crash the process (SIGSEGV, 9.19), and other
//     strides that are not multiples of 16 bytes, or 0
//   - q (if thd) and o where the engine ignores the lengths of q (lengths.h)
// and do, dq, dk and dv where o, q, k and v do.
#pragma once

#include <string>
#include <vector>

#include "compiler/engines/shared/graph_builder.h"
#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Whether strides of 0 make several elements one.
bool repeats(const ir::Layout& layout);

// Whether "q", "k", "v", "o" or a gradient is read or written through a copy.
bool is_staged(const ir::Attention& attention, std::string_view name);
// The copy: a packed internal tensor [B,H,S,D], 0 where the tensor has no element.
std::string staged_name(std::string_view name);
Dims4 staged_dims(const ir::Attention& attention, std::string_view name);

plan::TensorInfo staged_info(const ir::Attention& attention, std::string_view name);

struct Staging {
  std::vector<plan::TensorInfo> internals;
  std::vector<plan::DeriveStep> before, after;  // relative to the graph
};

// Staging for a graph that reads `inputs` and writes `outputs`. Errors: unsupported if a paged
// tensor needs a copy.
Result<Staging> staging(const ir::Attention& attention, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs);

}  // namespace attn::engines
