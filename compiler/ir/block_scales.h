// The scales of Scaling::mxfp8, those of the OCP Microscaling Formats Specification 1.0, and the
// copies of tensors that the backward reads beside them.
//
// A block is kBlock consecutive elements along the axis that a product sums over; its scale is one
// e8m0. Tensors that two products read along different axes exist twice, since elements are rounded
// relative to the scale of their block: x_t is the copy of x with blocks along its other axis, with
// the dims and the layout of x (it is not transposed in memory).
//
// Scales are a tensor [B, H, S', D'] in which the axis of the blocks has a scale for each block, up
// to a multiple of 4, and the other axis as many as x has elements, up to a multiple of 128; for
// blocks along the rows [B, H, blocks, elements]. Memory is in tiles of 512 bytes, of 128 elements
// of the other axis and 4 blocks: element r, block j of a tile is at 16 (r mod 32) + 4 (r / 32) +
// j. Tiles along the blocks are adjacent, then those along rows, heads and batches; tiles along
// columns are outermost. This is F8_128x4 of cuDNN and what TransformerEngine passes to it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "compiler/ir/attention.h"

namespace attn::ir {

inline constexpr std::int64_t kBlock = 32;  // elements
inline constexpr std::int64_t kTileElements = 128;
inline constexpr std::int64_t kTileBlocks = 4;

// What kernels multiply weights with before they round them to 8 bits: relative to the largest of
// the row in the forward, the final ones for dv (cudnn-frontend's mxfp8_ref.py).
inline constexpr double kWeightScale = 16;
inline constexpr double kWeightScaleOfGradients = 256;

// One for each tensor of 8 bits.
struct BlockScale {
  std::string_view name;
  std::string_view of;    // q, k, v, do, or a copy
  bool along_rows;        // or along the head dimension
  bool backward = false;  // exists only beside gradients
};
inline constexpr BlockScale kBlockScales[] = {
    {"descale_q", "q", false},          {"descale_k", "k", false},
    {"descale_v", "v", true},           {"descale_q_t", "q_t", true, true},
    {"descale_k_t", "k_t", true, true}, {"descale_v_t", "v_t", false, true},
    {"descale_do", "do", false, true},  {"descale_do_t", "do_t", true, true}};

// A tensor of the backward alone: q again, or do as it was before it was rounded to 8 bits.
struct Copy {
  std::string_view name;
  std::string_view of;
  bool is_narrow = true;  // 8 bits, as `of`; or the type of o
};
inline constexpr Copy kCopies[] = {
    {"q_t", "q"}, {"k_t", "k"}, {"v_t", "v"}, {"do_t", "do"}, {"do_f16", "do", false}};

const BlockScale* find_block_scale(std::string_view name);  // null: none
const Copy* find_copy(std::string_view name);

using Sizes4 = std::array<std::int64_t, 4>;

// The dims of the scales of a tensor [B, H, S, D].
Sizes4 scale_dims(bool along_rows, const Sizes4& of);

// Where the scale of element `at` is, in a tensor of scales of these dims.
std::int64_t scale_place(bool along_rows, const Sizes4& scales, const Sizes4& at);

// The scale with which the largest magnitude of a block does not saturate: the smallest power of
// two that is at least amax / max_finite(dtype), or 2^-127. NaN if amax is not finite.
double block_scale(double amax, DType dtype);

// Rounds the elements of one block to dtype and back.
void round_block(std::span<double> block, DType dtype);

}  // namespace attn::ir
