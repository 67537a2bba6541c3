// Batches without keys or without rows, where only lengths tell.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// Of a batch whose length of keys is 0 cuDNN's engine for several rows makes NaN (9.19, H200): the
// step after it that makes o 0, lse and max -inf and sum_exp 0 instead. Nothing where no batch can
// be without keys, or another engine serves: with one row, or with a sink.
std::optional<plan::DeriveStep> keyless(const ir::Attention& attention);

// The backward leaves gradients of such batches unwritten (9.19, H200; mla with padding): the step
// after it that makes those of `gradients` 0 ("dq", "dk", "dv", as they are bound). Nothing where
// no batch can be without either.
std::optional<plan::DeriveStep> keyless_backward(const ir::Attention& attention,
                                                 const std::vector<std::string>& gradients);

}  // namespace attn::lowering
