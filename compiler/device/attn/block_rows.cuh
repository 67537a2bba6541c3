// The rows of a block of keys or values, copied by TMA: adjacent ones of a batch, or pages.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// Where the keys or values of a block are: those of a batch are adjacent (kPage is 0), or in pages
// of kPage rows. One copy moves kPiece rows, which are of one page. Each lane copies some of the
// pieces.
template <int kRows, int kPage, int kPiece, int kLanes>
struct BlockRows {
  static constexpr int kPieces = kRows / kPiece, kOfLane = (kPieces + kLanes - 1) / kLanes;
  int places[kOfLane];  // the map's last coordinate: of the batch, or the page of each piece

  static __device__ int row_of(int i) {
    return kLanes == 1 ? i * kPiece : (i * kLanes + (int)threadIdx.x) * kPiece;
  }

  // Finds the block at row `at` of a batch with `keys` rows, which is at `last` in the map, or
  // whose pages `table` lists. TMA reads zeros from page -1: entries past the rows are not read.
  __device__ void find(const int* table, int last, int at, int keys) {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      if constexpr (kPage == 0) {
        places[i] = last;
      } else {
        const int row = at + row_of(i);
        places[i] = row < keys ? table[row / kPage] : -1;
      }
    }
  }

  template <int kPanels, int kColumns, int kRowBytes, bool kOnce>
  __device__ void copy(unsigned to, const TensorMap& map, unsigned full, int at, int head) const {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int of_block = row_of(i), row = at + of_block;
      if (of_block >= kRows) continue;
      for (int panel = 0; panel < kPanels; ++panel) {
        copy_box<kOnce>(to + (panel * kRows + of_block) * kRowBytes, map, full, panel * kColumns,
                        kPage == 0 ? row : row % (kPage == 0 ? 1 : kPage), head, places[i]);
      }
    }
    // So that no lane waits for a phase that has passed for the others.
    if (kLanes > 1) __syncwarp();
  }
};

}  // namespace kernels
