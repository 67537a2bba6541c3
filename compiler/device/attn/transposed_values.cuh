// Values of 8-bit floats with the keys of a column adjacent, as their products read them: the
// transposes [B, Hkv, Dv, keys] of v, where keys from the last one of a batch on are 0.
//
// In each 16 keys, place 4 t + e has key 2 t + e, or 6 + 2 t + e for e from 2 on. So a thread has
// the weights of 4 adjacent places in adjacent registers: its columns of scores are 2 t, 2 t + 1 of
// each 8 (wgmma.cuh).
//
// A block of threads transposes a tile of 128 keys and 128 columns. Rows of the tile are in shared
// memory, each in vectors of 16 bytes, which are rotated by one from each 16 keys to the next: so a
// warp reads words of 8 groups of keys and 4 adjacent words of columns from different banks.
//
// A generated kernel gives a class V of constants: kBatches, kHeads (of keys), kKeys, kStored and
// kPitch (keys of a row of the result, a multiple of 16), kBatchStride, kHeadStride, kRowStride (of
// v, in elements), kColumnStride, kVector (16, or 8, or 1: bytes that rows may be read by), kPage
// (keys of a page; 0: v is in no pages) and kPages (of a batch), kPacked (batches begin at row
// `starts[b]`). kBound: strides and pages of a batch are `strides`.
#pragma once

#include "attn/forward_tensors.cuh"
#include "attn/hopper.cuh"

namespace kernels {

constexpr int kTransposingThreads = 256;

template <class V, bool kBound = false>
struct TransposedValues {
  static constexpr int kTile = 128;  // keys, and columns at most
  static constexpr int kKeyTiles = (V::kPitch + kTile - 1) / kTile;
  static constexpr int kColumnTiles = (V::kStored + kTile - 1) / kTile;

  const unsigned char* v;
  unsigned char* to;
  const int* table;   // pages of each batch, [kBatches, kPages]
  const int* starts;  // of batches
  PoolStrides strides{};

  // The batch of the block, which has `keys`.
  static __device__ int batch() { return blockIdx.x / (kKeyTiles * kColumnTiles * V::kHeads); }

  __device__ void run(int keys) const {
    alignas(16) __shared__ unsigned words[kTile * kTile / 4];
    int tile = blockIdx.x;
    const int first_key = tile % kKeyTiles * kTile;
    tile /= kKeyTiles;
    const int first_column = tile % kColumnTiles * kTile;
    const int head = tile / kColumnTiles % V::kHeads, b = batch();
    for (int i = threadIdx.x; i < kTile * 8; i += kTransposingThreads) {
      const int key = i / 8, vector = i % 8, column = first_column + vector * 16;
      uint4 bytes = make_uint4(0, 0, 0, 0);
      if (first_key + key < keys && column < V::kStored) {
        bytes = load(v + row(b, head, first_key + key) + column * V::kColumnStride, column);
      }
      *reinterpret_cast<uint4*>(words + place(key, vector * 4)) = bytes;
    }
    __syncthreads();
    unsigned char* const rows = to + (long long)(b * V::kHeads + head) * V::kStored * V::kPitch;
    for (int i = threadIdx.x; i < kTile / 16 * (kTile / 4); i += kTransposingThreads) {
      const int group = i % 8, column = i / 8 * 4, key = first_key + group * 16;
      if (key >= V::kPitch || first_column + column >= V::kStored) continue;
      unsigned columns[4][4];
      transpose(words, group * 16, column / 4, columns);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const long long at = (long long)(first_column + column + c) * V::kPitch + key;
        *reinterpret_cast<uint4*>(rows + at) =
            make_uint4(columns[c][0], columns[c][1], columns[c][2], columns[c][3]);
      }
    }
  }

 private:
  __device__ long long row(int b, int head, int key) const {
    if constexpr (kBound) {
      constexpr int kPage = V::kPage > 0 ? V::kPage : 1;
      const long long in_head = head * strides.head;
      if constexpr (V::kPage == 0) return (starts[b] + key) * strides.row + in_head;
      const int* const pages = table + b * strides.table;
      return pages[key / kPage] * strides.page + in_head + key % kPage * strides.row;
    }
    if constexpr (V::kPage > 0) {
      constexpr int kPage = V::kPage > 0 ? V::kPage : 1;
      const long long page = table[b * V::kPages + key / kPage];
      return page * V::kBatchStride + head * V::kHeadStride + key % kPage * V::kRowStride;
    }
    const long long first = V::kPacked ? starts[b] * V::kRowStride : b * V::kBatchStride;
    return first + head * V::kHeadStride + key * V::kRowStride;
  }

  // 16 columns from this one on, as far as there are: rows are at multiples of kVector bytes.
  static __device__ uint4 load(const unsigned char* from, int column) {
    if constexpr (V::kVector == 16) return *reinterpret_cast<const uint4*>(from);
    unsigned all[4] = {};
    for (int i = 0; i < 16 && column + i < V::kStored; i += V::kVector) {
      if constexpr (V::kVector == 8) {
        const uint2 two = *reinterpret_cast<const uint2*>(from + i);
        all[i / 4] = two.x, all[i / 4 + 1] = two.y;
      } else {
        all[i / 4] |= (unsigned)from[i * V::kColumnStride] << i % 4 * 8;
      }
    }
    return make_uint4(all[0], all[1], all[2], all[3]);
  }

  // The place of a word of a row of the tile.
  static __device__ int place(int key, int word) {
    return key * (kTile / 4) + (word + key / 16 * 4) % (kTile / 4);
  }

  // Columns of 16 keys, in the order of places.
  static __device__ void transpose(const unsigned* words, int first, int word,
                                   unsigned (&columns)[4][4]) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const int key = first + 2 * t;
      const unsigned x = words[place(key, word)], y = words[place(key + 1, word)];
      const unsigned z = words[place(key + 8, word)], w = words[place(key + 9, word)];
      const unsigned xy[2] = {__byte_perm(x, y, 0x5140), __byte_perm(x, y, 0x7362)};
      const unsigned zw[2] = {__byte_perm(z, w, 0x5140), __byte_perm(z, w, 0x7362)};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        columns[c][t] = __byte_perm(xy[c / 2], zw[c / 2], c % 2 == 0 ? 0x5410 : 0x7632);
      }
    }
  }
};

}  // namespace kernels
