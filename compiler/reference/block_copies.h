// The copies of tensors that the backward of an attention with scales of blocks reads
// (compiler/ir/block_scales.h), for calls that bind none.
#pragma once

#include "compiler/ir/block_scales.h"
#include "runtime/io/host_tensor.h"

namespace attn::reference {

struct BlockCopy {
  io::HostTensor elements;  // in the order of the layout
  io::HostTensor scales;    // empty for a copy without scales
};

// What a quantizer makes of what `x`, [B,H,S,D] as given, and its scales stand for. `x` is what is
// copied: q, k, v or do.
BlockCopy make_copy(const ir::Attention& attention, const ir::Copy& copy, io::HostTensor x,
                    const io::HostTensor& scales);

}  // namespace attn::reference
