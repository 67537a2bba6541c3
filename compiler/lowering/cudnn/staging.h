// Tensors that cuDNN's kernels cannot read or write where they are: its kernel works on copies, and
// those of outputs are copied back. These are
//   - head dimensions that are no multiple of 8, which it refuses: padded with zeros, which change
//     no score
//   - rows whose elements are not adjacent, which kill the process (SIGSEGV, 9.19), and other
//     strides that are no multiple of 16 bytes
//   - q (when thd) and o where the engine does not look at the lengths of q (lengths.h)
// and do, dq, dk and dv where o, q, k and v are such.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/lowering/cudnn/graph_builder.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// Whether "q", "k", "v", "o" or a gradient is read or written through a copy.
bool is_staged(const ir::Attention& attention, std::string_view name);
// The copy: an internal tensor [B,H,S,D], packed, with zeros where the tensor has nothing.
std::string staged_name(std::string_view name);
Dims4 staged_dims(const ir::Attention& attention, std::string_view name);

plan::TensorInfo staged_info(const ir::Attention& attention, std::string_view name);

struct Staging {
  std::vector<plan::TensorInfo> internals;
  std::vector<plan::DeriveStep> before, after;  // the graph
};

// Of a graph that reads `inputs` and writes `outputs`. Errors: unsupported for a paged tensor.
Result<Staging> staging(const ir::Attention& attention, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs);

}  // namespace attn::lowering
