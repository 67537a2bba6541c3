// Tensors with scales of blocks, in the order in which cuDNN's engines recognise them (the graphs
// of cudnn-frontend's sdpa_mxfp8).
#pragma once

#include <string>

#include "compiler/engines/shared/graph_builder.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/target/context.h"

namespace attn::engines {

// Errors: unsupported, for an attention with scales of blocks that cuDNN does not compute.
Status check_blocks(const ir::Attention& attention, const target::Context& context);

// What "q", "k", "v", "do" or a copy of them stands for, [B,H,S,D] as virtual f32: each element
// times the scale of its block. `turned` presents it as [B,H,D,S].
Uid add_dequantized(const ir::Attention& attention, GraphBuilder& builder, const std::string& name,
                    bool turned = false);

// The copy of do that was not rounded to 8 bits.
Uid add_unrounded(const ir::Attention& attention, GraphBuilder& builder);

}  // namespace attn::engines
