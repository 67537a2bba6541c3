// Emits CUDA C++ kernels that compute derived tensors.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/passes/rewrite/hoist.h"
#include "runtime/plan/program.h"

namespace attn::derive {

struct KernelSource {
  std::string text;
  std::vector<plan::OperandSource> inputs;  // the kernel's arguments after the outputs, in order
};

// A kernel as plan::DeriveStep describes it. Values are those of the reference evaluator: integers
// are 32 bits and wrap, reals are computed in double and rounded to f32 at the end. Where an
// expression has no value (a gather outside its tensor, an integer division by 0, a shift outside
// 0..31, int() of what fits no integer) the result is arbitrary, and nothing outside a tensor is
// read.
//
// The text includes prelude.h as kPreludeName. The expressions are in the dag of `attention`.
KernelSource emit_kernel(const ir::Attention& attention,
                         const std::vector<passes::DerivedTensor>& outputs);

// The parts of a source: its include line, and one kernel, whose body has the thread's number in
// `i`.
std::string include_text();
std::string kernel_text(const char* name, const std::vector<std::string>& parameters,
                        const std::string& body);

// Text of attn_widen(unsigned short), which converts bits of `dtype`, f16 or bf16, to float.
std::string widening_text(DType dtype);

// Text of attn_narrow(float), which rounds to `dtype`, f16 or bf16, and returns the bits.
std::string narrowing_text(DType dtype);

}  // namespace attn::derive
