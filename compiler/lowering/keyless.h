// Batches without keys, where only lengths tell.
#pragma once

#include <optional>

#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// Of a batch whose length of keys is 0 cuDNN's engine for several rows makes NaN (9.19, H200): the
// step after it that makes o 0, lse and max -inf and sum_exp 0 instead. Nothing where no batch can
// be without keys, or another engine serves: with one row, or with a sink.
std::optional<plan::DeriveStep> keyless(const ir::Attention& attention);

}  // namespace attn::lowering
