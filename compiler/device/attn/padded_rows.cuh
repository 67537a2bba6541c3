// Copies of rows of 8-bit floats that TMA cannot read: rows of a multiple of 16 elements follow
// each other, with zeros behind those that there are.
#pragma once

#include "attn/places.cuh"

namespace kernels {

// `From`, `To`: where rows are, and where their copies are.
template <class From, class To, int kBatches, int kHeads, int kRows>
struct PaddedRows {
  static constexpr int kVectors = To::kColumns / 8;  // of a row
  static constexpr long long kThreads = (long long)kBatches * kHeads * kRows * kVectors;

  const unsigned char* from;
  unsigned char* to;
  const int* starts;  // of packed rows, or the pages of rows in pages; null: neither

  // Eight columns of a row, if the batch has it: lengths(b) are its rows.
  template <typename Lengths>
  __device__ void run(long long i, const Lengths& lengths) const {
    const int column = (int)(i % kVectors) * 8, row = (int)(i / kVectors % kRows);
    const long long of_all = i / kVectors / kRows;
    const int h = (int)(of_all % kHeads), b = (int)(of_all / kHeads);
    if (b >= kBatches || row >= lengths(b)) return;
    uint2 bytes = make_uint2(0, 0);
    if (column < From::kColumns)
      bytes = From::load(from + From::place(starts, b, h, row) + column * From::kColumn, column);
    *reinterpret_cast<uint2*>(to + To::place(starts, b, h, row) + column) = bytes;
  }
};

}  // namespace kernels
