// Plans that take much memory beside their tensors, and what would take less.
#pragma once

#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/memory.h"

namespace attn::driver {

inline constexpr std::int64_t kMuchMemory = 1'000'000'000;  // bytes

// Reports W0480 where a plan of this program takes more than kMuchMemory, with what takes most of
// it and what would need less: at the learned tensor that it is taken for, else at the attention.
void warn_of_memory(const ir::Attention& attention, const plan::Program& program,
                    const plan::Memory& memory, diag::Sink& sink);

// The same of the programs that the spec's sizes lead to, without cuDNN's part: the forward's, and
// where the spec has a `grad` clause the backward's. Nothing where a dimension is open.
void warn_of_memory(const ir::Attention& attention, diag::Sink& sink);

}  // namespace attn::driver
