// Scales, rounding and amax of 8-bit attention, in the order in which cuDNN's engines recognise
// them (the graphs of cudnn-frontend's sdpa_fp8).
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/engines/shared/graph_builder.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/target/context.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Errors of both: unsupported, for an 8-bit attention that cuDNN refuses or is not known to compute
// right.
Status check_quantized(const ir::Attention& attention, const masks::MaskForm& form,
                       const target::Context& context);

Status check_quantized_backward(const ir::Attention& attention, const masks::MaskForm& form,
                                const target::Context& context);

// x times these of kScales, which the attention has.
Value times_scales(const ir::Attention& attention, GraphBuilder& builder, Value x,
                   std::initializer_list<std::string_view> scales);

// x, with one value per row, times the scale.
Uid times_row_scale(const ir::Attention& attention, GraphBuilder& builder, Uid x,
                    std::string_view scale);

// The largest magnitude of x, as the tensor `name`.
void store_amax(const ir::Attention& attention, GraphBuilder& builder, Uid x,
                const std::string& name);

// Weights, f32, as they are in the product with v; stores amax_s.
Value quantized_weights(const ir::Attention& attention, GraphBuilder& builder, Value weights);

// o = weights v, scaled; stores amax_o.
void times_quantized_value(const ir::Attention& attention, GraphBuilder& builder, Value weights,
                           const Lengths& lengths);

// A gradient, dq, dk or dv, from the product `sum`, f32 with the dims of the gradient: times these
// scales, stored in `to` times its own; stores its amax.
void store_quantized_gradient(const ir::Attention& attention, GraphBuilder& builder, Uid sum,
                              std::initializer_list<std::string_view> scales,
                              const std::string& name, Uid to);

// x, with one value per score, times the scale, as `dtype`.
Value narrowed(const ir::Attention& attention, GraphBuilder& builder, Value x,
               std::string_view scale, DType dtype);

// The outputs of the backward, f32 [1]: "amax_dp", of ds, unless its scales are of blocks, and
// those of dq, dk and dv.
std::span<const char* const> amax_of_gradients(const ir::Attention& attention);

// Tensors that kernels write although they are not among the outputs.
std::vector<plan::TensorInfo> unwanted_amax(const ir::Attention& attention);

// Errors: unsupported, for an attention with scales of blocks that cuDNN does not compute.
Status check_blocks(const ir::Attention& attention, const target::Context& context);

// What "q", "k", "v", "do" or a copy of them stands for, [B,H,S,D] as virtual f32: each element
// times the scale of its block. `turned` presents it as [B,H,D,S].
Uid add_dequantized(const ir::Attention& attention, GraphBuilder& builder, const std::string& name,
                    bool turned = false);

// The copy of do that was not rounded to 8 bits.
Uid add_unrounded(const ir::Attention& attention, GraphBuilder& builder);

}  // namespace attn::engines
