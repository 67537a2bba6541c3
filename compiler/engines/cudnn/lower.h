// Lowers an attention to a program with one cuDNN plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/masks/band.h"
#include "compiler/target/context.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// The graph of one forward pass from products, pointwise operations and reductions. Requires bound
// dimensions. Errors: those of lower().
Result<plan::CudnnStep> composite(const ir::Attention& attention, const masks::MaskForm& form);

// The same as a single attention node, cuDNN's SDPA_FWD. Whether a cuDNN version supports the node
// is left to cuDNN. Errors also: unsupported for what the node cannot express: max, sum_exp,
// dropout by a mask.
Result<plan::CudnnStep> unified(const ir::Attention& attention, const masks::MaskForm& form);

// One of them.
using Core = Result<plan::CudnnStep> (*)(const ir::Attention& attention,
                                         const masks::MaskForm& form);

// One cuDNN plan: Q K^T, scale, score, residual masks, band masks in the exact forms whose blocks
// cuDNN skips, softmax with statistics, P V; plus the steps that produce the tensors it needs.
// Masks must have been simplified. Without keys (Skv 0) a kernel fills the outputs, without cuDNN.
//
// Errors: invalid_argument for an open dimension; unsupported, with the position and a workaround;
// invalid_spec, with the position, for errors that only sizes reveal.
Result<plan::Program> lower(const ir::Attention& attention, const target::Context& context,
                            Core core = composite);

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
