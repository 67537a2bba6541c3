// Derived tensors as the source of a CUDA C++ kernel.
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

// A kernel as plan::DeriveStep describes it. Every value is that of the reference evaluator:
// integers are 32 bits and wrap, reals are computed in double and rounded to f32 at the end. Where
// an expression has no value (a gather outside its tensor, an integer division by 0, a shift
// outside 0..31, int() of what fits no integer) some value comes out, and nothing outside a tensor
// is read.
//
// The text includes prelude.h by its name there. `attention` is the one whose dag the expressions
// are of.
KernelSource emit_kernel(const ir::Attention& attention,
                         const std::vector<passes::DerivedTensor>& outputs);

// The parts of a source: its include line, and one kernel, whose body finds its thread's number in
// i.
std::string include_text();
std::string kernel_text(const char* name, const std::vector<std::string>& parameters,
                        const std::string& body);

// A function attn_widen(unsigned short): the float that the bits of that type, f16 or bf16, are.
std::string widening_text(DType dtype);

// A function attn_narrow(float): the bits of the nearest number of that type, f16 or bf16.
std::string narrowing_text(DType dtype);

}  // namespace attn::derive
