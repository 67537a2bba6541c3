// Where the elements of a tensor are in memory.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// Where the elements of a tensor are, which has kColumns columns. kAligned: its rows are
// contiguous, at multiples of 8 elements, and have multiples of 8. kPacked: a batch begins at row
// starts[b] of all (thd), and has no rows past its length.
template <long long kBatch, long long kHead, long long kRow, long long kColumn_, int kColumns_,
          bool kAligned, bool kPacked_>
struct Places {
  static constexpr long long kColumn = kColumn_, kRowStride = kRow;
  static constexpr long long kStrides = kBatch | kHead | kRow;  // bits of all but that of columns
  static constexpr int kColumns = kColumns_;
  static constexpr bool kPacked = kPacked_;

  static __device__ long long place(const int* starts, int b, int h, int row) {
    return (kPacked ? starts[b] * kRow : b * kBatch) + h * kHead + row * kRow;
  }
  // Eight adjacent columns from `first` on, or those of them that there are: the others are 0.
  // `from` is where column `first` is.
  static constexpr bool kWhole = kColumns % 8 == 0;
  static __device__ __forceinline__ bool has(int column) { return kWhole || column < kColumns; }
  static __device__ __forceinline__ void load(const unsigned short* from, int first,
                                              unsigned (&pairs)[4]) {
    if constexpr (kAligned) {
      const uint4 all = *reinterpret_cast<const uint4*>(from);
      pairs[0] = all.x, pairs[1] = all.y, pairs[2] = all.z, pairs[3] = all.w;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const unsigned low = has(first + 2 * i) ? from[2 * i * kColumn] : 0;
        pairs[i] = low | (has(first + 2 * i + 1) ? (unsigned)from[(2 * i + 1) * kColumn] << 16 : 0);
      }
    }
  }
  static __device__ __forceinline__ void store(unsigned short* to, int first,
                                               const unsigned (&pairs)[4]) {
    if constexpr (kAligned) {
      *reinterpret_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (has(first + i)) to[i * kColumn] = pairs[i / 2] >> (i & 1) * 16;
      }
    }
  }
  // The same of 8 bits, whose pairs are lower halves. What is loaded is never written.
  static __device__ __forceinline__ uint2 load(const unsigned char* from, int first) {
    if constexpr (kAligned) return __ldg(reinterpret_cast<const uint2*>(from));
    unsigned words[2] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (has(first + i)) words[i / 4] |= (unsigned)from[i * kColumn] << i % 4 * 8;
    }
    return make_uint2(words[0], words[1]);
  }
  static __device__ __forceinline__ void store(unsigned char* to, int first,
                                               const unsigned (&pairs)[4]) {
    if constexpr (kAligned) {
      *reinterpret_cast<uint2*>(to) = make_uint2(__byte_perm(pairs[0], pairs[1], 0x5410),
                                                 __byte_perm(pairs[2], pairs[3], 0x5410));
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (has(first + i)) to[i * kColumn] = pairs[i / 2] >> (i & 1) * 8;
      }
    }
  }
};

// The same of rows in pages: page_table[b * kPages + page] is where the page with this row is.
template <long long kBatch, long long kHead, long long kRow, long long kColumn_, int kColumns_,
          bool kAligned, int kPage, int kPages>
struct PagedPlaces : Places<kBatch, kHead, kRow, kColumn_, kColumns_, kAligned, false> {
  static __device__ long long place(const int* page_table, int b, int h, int row) {
    const long long page = page_table[(long long)b * kPages + row / kPage];
    return page * kBatch + h * kHead + row % kPage * kRow;
  }
};

}  // namespace kernels
