// Rows of scores, each computed by several threads of a warp.
#pragma once

#include "attn/values.cuh"

namespace kernels {

// The sum over the lanes of a row, in every lane.
static __device__ double sum_over_lanes(double x, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// The largest over the lanes of a row, in every lane; NaN if one is.
static __device__ float largest_of_lanes(float x, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, x, step);
    if (other > x || other != other) x = other;
  }
  return x;
}

// A thread's row.
struct Row {
  long long r;        // in tensors of scores; the last one if the thread has none
  long long b, h, s;  // of [B,Hq,Sq]
  int lane;
  bool live;          // whether the thread has a row
  bool present;       // whether it is within the lengths
  long long visible;  // how many of its columns are, 0 if it is not present
  long long whole;    // of [B,Hq,Sq]
  long long place;    // in bound statistics, if it is present
};

// Thread i of `rows * lanes` computes a part of row i / lanes. All threads of a warp must reach
// each sum over lanes.
struct Rows {
  long long rows = 1;  // of tensors of scores: B Hq Sq, or those of a tile
  int lanes = 32;      // a power of two, up to 32
  long long Sq = 1, Hq = 1, Skv = 1;
  const int* lengths_q = nullptr;   // [B]; null: all rows are present
  const int* lengths_kv = nullptr;  // [B]; null: all columns are visible
  const int* row_starts = nullptr;  // [B+1], if bound statistics are [T,Hq]; null: [B,Hq,Sq]

  // A tile has `tile_rows` adjacent rows of each group of `group_rows`, from row *first of
  // [B,Hq,Sq] on; null: rows are those of [B,Hq,Sq].
  const long long* first = nullptr;
  long long tile_rows = 1, group_rows = 1;

  __device__ Row row_of(long long i) const {
    Row row;
    row.lane = (int)(i % lanes);
    row.live = i / lanes < rows;
    row.r = row.live ? i / lanes : rows - 1;
    row.whole = first ? row.r / tile_rows * group_rows + *first + row.r % tile_rows : row.r;
    row.s = row.whole % Sq, row.h = row.whole / Sq % Hq, row.b = row.whole / Sq / Hq;
    row.present = !lengths_q || row.s < lengths_q[row.b];
    const long long columns =
        lengths_kv && lengths_kv[row.b] < Skv ? (long long)lengths_kv[row.b] : Skv;
    row.visible = row.present ? columns : 0;
    row.place = row.whole;
    if (row_starts) row.place = (row_starts[row.b] + row.s) * Hq + row.h;
    return row;
  }
};

}  // namespace kernels
