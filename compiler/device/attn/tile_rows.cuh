// The rows of a tile of queries that a thread has: their heads and queries.
#pragma once

#include "attn/patches.cuh"
#include "attn/schedule.cuh"

namespace kernels {

// A thread's two rows of a tile, 8 apart.
template <class C>
struct TileRows {
  int b = 0, h[2] = {0, 0}, q[2] = {0, 0};
  int item = 0;  // of the tiles of all units; with parts, these are counted. Or the slot of a part

  // `tile` counts parts, or has the slot.
  __device__ void set(int unit, int tile, int row) {
    b = unit / C::kUnits;
    if (C::kSplits > 1) item = unit * (C::kTiles * C::kSplits) + tile, tile /= C::kSplits;
    if (C::kScheduled) item = (unsigned)tile >> kTileBits, tile &= (1 << kTileBits) - 1;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // The first row, if the other's head is the same: what is computed of both stays in
      // registers.
      constexpr bool kShareHead = 8 % C::kPack == 0;
      const unsigned r = row + (kShareHead ? 0 : 8 * i);
      const unsigned further = kShareHead ? 8 * i / C::kPack : 0;
      h[i] = unit % C::kUnits * C::kPack + r % C::kPack;
      q[i] = query(tile, r / C::kPack + further);
    }
  }
  __device__ static int query(int tile, int n) {
    if constexpr (C::kPatches) {
      const Place first = patch_of_queries<C>(tile);
      return place<C>(first.y + n / C::kPatchWidth, first.x + n % C::kPatchWidth).index;
    } else {
      return tile * C::kRowsOfTile + n;
    }
  }
  // A row of the attention, for those past its end too.
  __device__ auto row(int i) const {
    if constexpr (C::kPatches) {
      constexpr bool kShareY = C::kPack * C::kPatchWidth % 16 == 0;  // which the compiler sees
      return Place{(int)((unsigned)q[kShareY ? 0 : i] / C::kGrid), (int)((unsigned)q[i] % C::kGrid),
                   q[i]};
    } else {
      return C::kRows % C::kRowsOfTile == 0 || q[i] < C::kRows ? q[i] : C::kRows - 1;
    }
  }
};

}  // namespace kernels
