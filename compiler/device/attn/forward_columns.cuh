// Which columns of a tile's scores a thread of the forward has.
#pragma once

#include "attn/patches.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// Numbers of columns: keys, or places of a grid.
template <class Base>
struct ForwardColumns : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Base::Base;
  using Base::block, Base::first_column;

  // Column of score i: a multiple of 16, and low bits that the compiler sees. The bits below the
  // period are a value of their own, the same for all columns that are multiples of it apart: so
  // the compiler sees that they share what follows from the remainder.
  __device__ __forceinline__ auto column(int i) const {
    if constexpr (C::kPatches) {
      const Place first = patch_of_keys<C>(block);
      return place<C>(first.y + i / 4, (first.x | first_column) + (i & 1));
    } else {
      constexpr int kLow = E::kColumnPeriod - 1;
      const int key = (int)(block & kKeyBits), offset = i / 8 * 16;
      const int high = (key + offset) & ~kLow, low = ((key & kLow) + (offset & kLow)) & kLow;
      return high | low | first_column | (i / 4 & 1) * 8 | (i & 1);
    }
  }
  // One that tensors have.
  __device__ __forceinline__ auto held_column(int i) const {
    if constexpr (C::kPatches || !E::kReadsColumns)
      return column(i);
    else
      return min(column(i), C::kColumns - 1);
  }
  // Columns from score 0 to score i.
  __device__ __forceinline__ static int columns_to(int i) {
    if constexpr (C::kPatches)
      return i / 4 * C::kGrid + (i & 1);
    else
      return i / 4 * 8 + (i & 1);
  }
};

}  // namespace kernels
