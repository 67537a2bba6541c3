// Adds steps for derived tensors to programs.
#pragma once

#include <set>
#include <string>

#include "compiler/masks/padding.h"
#include "compiler/rewrite/cancelled.h"
#include "compiler/rewrite/hoist.h"
#include "runtime/plan/program.h"

namespace attn::codegen {

// The program of `attention`. `program` is the lowered hoisted attention, with derived tensors as
// captured ones. Steps before it compute these, their inputs are bound instead, and bound values
// are checked. Returns `program` if nothing is derived.
plan::Program with_derived(const ir::Attention& attention, const rewrite::Hoisted& hoisted,
                           plan::Program program);

// The program of `attention`, whose padding this is. `program` computes `padding.attention`, which
// captures lengths, and has no check; a first step computes the lengths.
plan::Program with_lengths(const ir::Attention& attention, const masks::Padding& padding,
                           plan::Program program);

// The program with the term that softmax cancelled: `program`, which computes
// `cancelled.attention`, with the term added to its lse, if it has one.
plan::Program with_cancelled(const rewrite::Cancelled& cancelled, plan::Program program);

// Sorts the program's captured tensors and params in the order of the spec, adding those of `names`
// that it neither binds nor computes.
void bind_inputs(const ir::Attention& attention, const std::set<std::string>& names,
                 plan::Program& program);

}  // namespace attn::codegen
