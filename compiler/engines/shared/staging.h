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

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/shared/graph_builder.h"
#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Maps elements of packed copies to the tensors that the caller binds.
//
// Kernel statements for element `i` of a packed tensor of `dims`, at least those of "q", "k", "v"
// or "o". They define its indices `b`, `h`, `s` and `d`; `present`, whether the tensor has that
// element; and, if so, its `place` there. Elements past a batch's length are absent from thd and
// paged tensors, and from o where the engine ignores lengths (lengths.h).
std::string place_text(const ir::Attention& attention, const std::string& name, const Dims4& dims,
                       codegen::KernelText& kernel);

// Kernel statements that write element `i` of such a tensor from `copy`, packed with dims `copied`:
// 0 if it is not present, or nothing if the tensor has no such row.
std::string copy_out_text(const ir::Attention& attention, const std::string& name,
                          const std::string& copy, const Dims4& copied,
                          codegen::KernelText& kernel);

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
