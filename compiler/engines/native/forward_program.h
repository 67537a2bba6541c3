// The program of a forward kernel: tensors that are bound, and a step of launches (programs.h says
// what internal tensors it has).
#pragma once

#include "compiler/engines/native/kernel.h"
#include "compiler/ir/attention.h"
#include "compiler/target/context.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

// `attention` is what the kernel computes: `whole`, whose tensors are bound, or a form of it.
plan::Program forward_program(const ir::Attention& whole, const ir::Attention& attention,
                              const Kernel& kernel, const target::Context& context);

}  // namespace attn::engines::native
