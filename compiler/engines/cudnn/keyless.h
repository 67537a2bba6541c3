// Steps that fill the outputs of batches without keys or rows, according to lengths.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// For a batch with 0 keys, cuDNN's engine for several rows returns NaN (9.19, H200). Returns a step
// that runs after it and sets o to 0, lse and max to -inf and sum_exp to 0. Nothing if every batch
// has keys, or another engine is used (a single row, or a sink).
std::optional<plan::DeriveStep> keyless(const ir::Attention& attention);

// The backward does not write gradients of batches without keys or rows (9.19, H200; mla with
// padding). Returns a step that runs after it and sets those of `gradients` ("dq", "dk", "dv", as
// bound) to 0. Nothing if every batch has both.
std::optional<plan::DeriveStep> keyless_backward(const ir::Attention& attention,
                                                 const std::vector<std::string>& gradients);

}  // namespace attn::engines
