// The look for elements without a value when tensors are bound.
#pragma once

#include <optional>

#include "compiler/passes/rewrite/hoist.h"
#include "runtime/plan/program.h"

namespace attn::derive {

// The kernels that tell whether a score of `attention`, from which `hoisted` was made, depends on
// an element without a value: a gather outside its tensor, an integer division by 0, a shift
// outside 0..31 in what is derived. (What is not derived always has one, and int() of a real that
// fits no integer is not looked for.) The quick one goes over each such operation's own axes; the
// exact one, for which there is only need where that finds something, over the scores, by the rules
// of the reference evaluator.
//
// Nothing when every element has a value whatever is bound, and beyond plan::kMostChecked scores.
// (A program whose lengths are made by a step of its own has no check either: derive/steps.)
std::optional<plan::IndexCheck> index_check(const ir::Attention& attention,
                                            const passes::Hoisted& hoisted);

// Gives the program this check, or none where it reads what is not bound but made.
void set_check(plan::Program& program, std::optional<plan::IndexCheck> check);

}  // namespace attn::derive
