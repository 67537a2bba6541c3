// Emits CUDA C++ kernels that compute derived tensors.
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/kernel_text.h"
#include "compiler/ir/attention.h"
#include "compiler/rewrite/hoist.h"
#include "runtime/plan/program.h"

namespace attn::codegen {

// The step that computes these tensors, which are all made once or all at every execute. Values are
// those of the reference evaluator: integers are 32 bits and wrap, reals are computed in double and
// rounded to f32 at the end. Where an expression has no value (a gather outside its tensor, an
// integer division by 0, a shift outside 0..31, int() of what fits no integer) the result is
// arbitrary, and nothing outside a tensor is read.
//
// The expressions are in the dag of `attention`.
plan::DeriveStep emit_step(const ir::Attention& attention,
                           const std::vector<rewrite::DerivedTensor>& outputs);

// Text for KernelText::make: the writer's statements, then the last one.
std::string with_statements(const ExpressionWriter& writer, const std::string& last);

// Adds the inputs to a kernel.
void read_inputs(codegen::KernelText& kernel, const KernelInputs& inputs);

}  // namespace attn::codegen
