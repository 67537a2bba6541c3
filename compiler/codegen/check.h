// Checks bound tensors for elements without a value.
#pragma once

#include <optional>

#include "compiler/rewrite/hoist.h"
#include "runtime/plan/program.h"

namespace attn::codegen {

// Kernels that check whether a score of `attention`, the source of `hoisted`, depends on an element
// without a value in derived expressions: a gather outside its tensor, an integer division by 0, a
// shift outside 0..31. (What is not derived always has a value; int() of a real that fits no
// integer is not checked.) The quick kernel covers the axes of each such operation. The exact one,
// needed only if the quick one finds something, covers the scores, by the rules of the reference
// evaluator.
//
// The check of indexes; nothing if every element has a value whatever is bound, and beyond
// plan::kMostChecked scores. (Programs with a step that computes lengths have no check either:
// codegen/steps.h.)
std::optional<plan::IndexCheck> index_check(const ir::Attention& attention,
                                            const rewrite::Hoisted& hoisted);

// Sets the program's check, or none if it reads tensors that are computed, not bound.
void set_check(plan::Program& program, std::optional<plan::IndexCheck> check);

}  // namespace attn::codegen
