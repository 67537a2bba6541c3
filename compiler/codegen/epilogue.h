// The text of an epilogue: members of a kernel's class of expressions (attn/epilogue.cuh).
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::codegen {

// Members of what the forward computes (attn/forward_epilogue.cuh). The attention must have an
// epilogue.
std::string epilogue_text(const ir::Attention& attention);

// A learned tensor that an epilogue reads, and how each of its elements is found: the index of each
// axis is an index of o, one plus a constant, or a constant.
struct EpilogueTensor {
  std::string name;
  DType dtype = DType::f32;
  // Strides of its elements for the batch, the head, the row and the column; 0: it does not vary.
  std::int64_t batch = 0, head = 0, row = 0, column = 0;
  std::int64_t offset = 0;    // of constants in the indices
  std::int64_t elements = 1;  // of the tensor
  bool is_whole = true;       // all of them are read
  ir::ExprId local = 0;       // the derivative by its element, in the view's dag

  // Whether each row of o has elements of its own.
  bool is_own() const { return batch != 0 && head != 0 && row != 0; }
};

// Derivatives of an epilogue.
struct EpilogueSlopes {
  ir::Attention view;     // ir::epilogue_view, with more nodes
  ir::ExprId output = 0;  // the derivative by the element of o before it
  std::vector<EpilogueTensor> tensors;
};

// The derivatives by what is learned of the epilogue. Errors: unsupported, with the place, for a
// tensor that is read otherwise than EpilogueTensor says, in two ways that no constant index tells
// apart (else it is there once for each), or by other clauses too.
Result<EpilogueSlopes> epilogue_slopes(const ir::Attention& attention);

// Members of what the backward computes (attn/epilogue_gradients.cuh): `slopes`, and the learned
// tensors, whose gradients are fields d_NAME.
std::string epilogue_slopes_text(const EpilogueSlopes& slopes);

// Sets the check of bound values of the program, where the epilogue's indices need one. Errors:
// unsupported if the program has another.
Status check_epilogue(const ir::Attention& attention, plan::Program& program);

}  // namespace attn::codegen
