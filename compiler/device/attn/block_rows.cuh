// The rows of a block of keys or values, copied by TMA: adjacent ones of a batch, or pages.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// Where the keys or values of a block are: those of a batch are adjacent (kPage is 0), or in pages
// of kPage rows. One copy moves kPiece rows, which are of one page: a panel of them, or, in groups
// (kGrouped), all panels.
template <int kRows, int kPage, int kPiece, int kPanels, bool kGrouped, int kLanes>
struct BlockRows {
  static constexpr int kOfPiece = kGrouped ? 1 : kPanels;  // copies
  static constexpr int kCopies = kRows / kPiece * kOfPiece;
  static constexpr int kOfLane = (kCopies + kLanes - 1) / kLanes;
  static constexpr int kNowhere = -1 - 0x7fffffff;  // also with the steps of a head added
  int places[kOfLane];  // the map's last coordinate, of each copy: but for the head, if in groups

  // Copy i of the lane: its first row in the block, and its panel. Panels of a piece are of
  // adjacent lanes, so that memory reads its rows whole.
  static __device__ int copy_of(int i) { return kLanes == 1 ? i : i * kLanes + (int)threadIdx.x; }
  static __device__ int row_of(int i) { return copy_of(i) / kOfPiece * kPiece; }
  static __device__ int panel_of(int i) { return copy_of(i) % kOfPiece; }

  // Finds the block at row `at` of a batch with `keys` rows, which is at `last` in the map, or
  // whose pages `table` lists, each so many steps of the map. TMA reads zeros from places below 0:
  // entries past the rows are not read.
  __device__ void find(const int* table, int steps, int last, int at, int keys) {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      if constexpr (kPage == 0) {
        places[i] = last;
      } else {
        const int row = at + row_of(i);
        places[i] = row < keys ? table[row / kPage] * (kGrouped ? steps : 1) : kNowhere;
      }
    }
  }

  // Rows of kRowBytes, of a panel of kColumns; a head is so many steps of the map.
  template <int kColumns, int kRowBytes, bool kOnce>
  __device__ void copy(unsigned to, const TensorMap& map, unsigned full, int at, int head,
                       int steps) const {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int of_block = row_of(i), panel = panel_of(i), row = at + of_block;
      if (of_block >= kRows) continue;
      const int of_page = kPage == 0 ? row : row % (kPage == 0 ? 1 : kPage);
      if constexpr (kGrouped) {
        copy_box<kOnce>(to + of_block * kPanels * kRowBytes, map, full, 0, 0, 0, of_page / 8,
                        places[i] + head * steps);
      } else {
        copy_box<kOnce>(to + (panel * kRows + of_block) * kRowBytes, map, full, panel * kColumns,
                        of_page, head, places[i]);
      }
    }
    // So that no lane waits for a phase that has passed for the others.
    if (kLanes > 1) __syncwarp();
  }
};

}  // namespace kernels
