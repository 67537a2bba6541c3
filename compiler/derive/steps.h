// Derived tensors as steps of a program.
#pragma once

#include "compiler/passes/analysis/padding.h"
#include "compiler/passes/rewrite/cancelled.h"
#include "compiler/passes/rewrite/hoist.h"
#include "runtime/plan/program.h"

namespace attn::derive {

// The program that computes what `attention` means: `program`, which lowering made of what was
// hoisted from it and which takes the derived tensors as captured ones, with the steps before it
// that make them, and a check of what is bound; what these read is bound instead. The program
// itself when nothing is derived.
plan::Program with_derived(const ir::Attention& attention, const passes::Hoisted& hoisted,
                           plan::Program program);

// The program that computes what `attention` means, whose padding this is: `program`, which
// computes `padding.attention` and so is given lengths, and has no check, with a first step that
// makes them.
plan::Program with_lengths(const ir::Attention& attention, const passes::Padding& padding,
                           plan::Program program);

// The program that computes what softmax cancelled too: `program`, which computes
// `cancelled.attention`, with the term added to its lse, if it has one.
plan::Program with_cancelled(const passes::Cancelled& cancelled, plan::Program program);

}  // namespace attn::derive
