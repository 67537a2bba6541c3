// What fused kernels take, predicted: to choose among forms of one attention, offline.
//
// A kernel goes through tiles of 128 rows and 128 columns, those alone that the band shows where
// the kernel can skip the others; each tile costs its products and what is computed for each score,
// each 128 rows something on top, and the tiles of one row run one after another. Measured on an
// H200 (132 SMs) with cuDNN 9.19, head dimension 128 and 64: other GPUs are slower or faster by a
// factor that comparisons do not need.
#pragma once

#include "compiler/ir/attention.h"

namespace attn::passes {

// Milliseconds of one fused kernel for `classes` times this attention, which is in the form that
// the kernel computes (kernel_form.h). Dimensions must be bound. Batches that have lengths are
// taken to be half as long as they may be.
double predicted_ms(const ir::Attention& attention, bool backward, std::int64_t classes = 1);

// Of tiles of 128 rows and 128 columns.
struct TileWork {
  double tiles = 0;
  double most = 0;  // of one row of them
  double rows = 0;  // of them
};
// The same of this work, whatever the attention's dimensions and band say.
double predicted_ms_of_tiles(const ir::Attention& attention, const TileWork& work,
                             bool backward = false);

// Of a kernel that moves so many bytes, reads and writes together.
double predicted_ms_of_moving(double bytes);

}  // namespace attn::passes
