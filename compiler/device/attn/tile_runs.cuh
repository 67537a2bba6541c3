// The lists that kernels walk: which blocks a tile sees. In the forward tiles are of queries, and
// blocks of keys; in the backward the other way around.
#pragma once

namespace kernels {

// The runs of key blocks of a tile of queries: `runs` from `first` on, ascending, with `blocks`
// blocks in all.
struct alignas(16) Tile {
  int tile, first, runs, blocks;
};
// Adjacent blocks from `key` on; it is a multiple of 16, and other bits are kMasked and kByIndices.
// For a patch it is 16 times the number of the first 8 keys, counted row by row.
struct alignas(8) Run {
  int key, blocks;
};

// A block in the stream: its first key (of a patch 16 times the number of its first 8 keys), and
// these bits.
constexpr unsigned kMasked = 1;  // masks hide a part of it
constexpr unsigned kFirstOfTile = 2;
constexpr unsigned kLastOfTile = 4;
constexpr unsigned kPastKeys = 8;          // it reaches past the last key
constexpr unsigned kByIndices = 1u << 30;  // masks that read tensors show all of it
constexpr unsigned kKeyBits = kByIndices - 16;
constexpr unsigned kFewRows = kByIndices;  // with a schedule: the first warp group has all rows
constexpr unsigned kEndOfStream = ~0u;

}  // namespace kernels
