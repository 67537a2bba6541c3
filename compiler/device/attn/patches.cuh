// Tiles and blocks that are rectangles of a grid, for masks of neighbourhoods (kPatches).
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// A place in a grid of C::kGrid columns.
struct Place {
  int y, x, index;
};
template <class C>
ATTN_INLINE Place place(int y, int x) {
  return {y, x, y * C::kGrid + x};
}
// The first of a tile's queries, and of a block's keys.
template <class C>
ATTN_INLINE Place patch_of_queries(int tile) {
  constexpr unsigned kAcross = C::kGrid / C::kPatchWidth;
  return place<C>((unsigned)tile / kAcross * C::kPatchHeight,
                  (unsigned)tile % kAcross * C::kPatchWidth);
}
template <class C>
ATTN_INLINE Place patch_of_keys(unsigned block) {
  constexpr unsigned kAcross = C::kGrid / 8;
  return place<C>(block / 16 / kAcross, block / 16 % kAcross * 8);
}

}  // namespace kernels
