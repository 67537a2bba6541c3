// What fused kernels take, predicted: to choose among forms of one attention, offline.
//
// A kernel processes tiles of 128 rows and 128 columns, and skips those outside of its band. Each
// tile costs its products and the operations on each score; every 128 rows have a fixed cost; the
// tiles of one row run one after another. A single row takes as long as its keys and values are
// read. Figures are those of target/figures.def, measured on an H200 with cuDNN 9.19; those of
// 8-bit floats on an H100. For other GPUs they are scaled by matrix rate, SM count, clock and
// bandwidth (target::Gpu): no prediction exceeds the GPU's own matrix rate or bandwidth.
#pragma once

#include <cstdint>

#include "compiler/ir/attention.h"
#include "compiler/rewrite/hoist.h"
#include "compiler/target/context.h"

namespace attn::engines {

// Milliseconds of one fused kernel for `classes` times this attention, which is in the form that
// the kernel computes (rewrite/pass.h). Dimensions must be bound. Lengths are those of lengths.h.
double predicted_ms(const ir::Attention& attention, const target::Context& context,
                    std::int64_t classes = 1);

// Work in tiles of 128 rows and 128 columns.
struct TileWork {
  double tiles = 0;
  double most = 0;  // of one row of them
  double rows = 0;  // of them
};
// The same of this work, whatever the attention's dimensions and band say.
double predicted_ms_of_tiles(const ir::Attention& attention, const TileWork& work,
                             const target::Context& context);

// Pieces that attnc's own forward cuts the keys of few rows into, at most, so that no
// multiprocessor is idle.
inline constexpr std::int64_t kMostKeyPieces = 32;

// Keys and values that a kernel reads once, at so many bytes a ms of the H200: without what
// begins and ends the kernel. What memory still has to store delays the first of them.
double predicted_ms_of_reading(double bytes, double rate, const target::Gpu& gpu);

// Time of a kernel that moves so many bytes, reads and writes together.
double predicted_ms_of_moving(double bytes, const target::Gpu& gpu);

// Milliseconds that the kernels which derive tensors take at every execute: a launch, what they
// compute for each element, and what they write. Tensors that are materialized once cost nothing.
double predicted_ms_of_deriving(const rewrite::Hoisted& hoisted, const target::Gpu& gpu);

// How many times as long as the H200 the whole GPU takes for f32 and integer operations, and for
// matrix products with what accompanies them.
double scalar_slowdown(const target::Gpu& gpu);
double matrix_slowdown(const target::Gpu& gpu);

}  // namespace attn::engines
