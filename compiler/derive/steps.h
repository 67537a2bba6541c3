// Derived tensors as steps of a program.
#pragma once

#include "compiler/passes/hoist.h"
#include "runtime/plan/program.h"

namespace attn::derive {

// The program that computes what the spec means: `program`, which lowering made of
// hoisted.attention and which takes the derived tensors as captured ones, with the steps before it
// that make them; what they read is bound instead. The program itself when nothing is derived.
plan::Program with_derived(const passes::Hoisted& hoisted, plan::Program program);

}  // namespace attn::derive
