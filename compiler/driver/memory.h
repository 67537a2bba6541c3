// Warnings about plans that need much memory besides their tensors.
#pragma once

#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/memory.h"

namespace attn::driver {

inline constexpr std::int64_t kMuchMemory = 1'000'000'000;  // bytes

// Reports W0480 if a plan of this program needs more than kMuchMemory, with the main cause and how
// to reduce it. The span is the learned tensor that causes it, else the attention.
void warn_of_memory(const ir::Attention& attention, const plan::Program& program,
                    const plan::Memory& memory, diag::Sink& sink);

// The same for the programs that the spec lowers to, without cuDNN's workspace: the forward and, if
// the spec has a `grad` clause, the backward. Does nothing if a dimension is open.
void warn_of_memory(const ir::Attention& attention, diag::Sink& sink);

}  // namespace attn::driver
