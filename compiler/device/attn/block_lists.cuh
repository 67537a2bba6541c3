// Lists of the blocks of scores that masks show.
#pragma once

#include "attn/values.cuh"

namespace kernels {

struct Always {
  __device__ bool operator()(int, int, int, int) const { return true; }
};

// Thread i looks at block i of [lists,pages,groups]: out[i] becomes whether a score of it is shown.
// Index: an unsigned type that holds `blocks`; 32-bit divisions are several times as fast.
template <typename Index>
struct Looks {
  long long blocks = 1;
  Index groups = 1, group = 1;  // of rows; rows of each
  Index pages = 1, page = 1;    // of columns; columns of each
  int list_heads = 1;           // lists of a batch
  int rows = 1, columns = 1;    // of a block that `other` looks at
  int* out = nullptr;

  // uniform(b, h, row, column): whether masks that are the same in all of a block show it;
  // other(b, h, row, column): whether the other masks show a score.
  template <typename Uniform, typename Other>
  __device__ void run(long long i, Uniform uniform, Other other) const {
    if (i >= blocks) return;
    const Index n = i, list = n / groups / pages;
    const int b = list / list_heads, h = list % list_heads;
    const int first = n % groups * group, from = n / groups % pages * page;
    bool any = false;
    if (uniform(b, h, first, from)) {
      for (int row = first; row < first + rows && !any; ++row) {
        for (int column = from; column < from + columns && !any; ++column) {
          any = other(b, h, row, column);
        }
      }
    }
    out[i] = any;
  }
};

// Thread i lists the pages that tile i of [B,heads,tiles] sees.
struct Lists {
  int entries = 1;  // B heads tiles
  int heads = 1, tiles = 1, pages = 1, page = 1;
  int longest = 1;            // pages of a list
  bool by_batch = false;      // what `seen` depends on
  int list_heads = 1;         // heads, if it depends on them
  const int* seen = nullptr;  // [lists,pages,tiles]
  int* lengths = nullptr;     // made: columns of each list

  // put(b, h, place, p) stores page p of that head. The rest of a list is filled with page 0.
  template <typename Put>
  __device__ void run(long long i, Put put) const {
    if (i >= entries) return;
    const int n = i;
    const int t = n % tiles, h = n / tiles % heads, b = n / tiles / heads;
    const int list = (by_batch ? b : 0) * list_heads + (list_heads > 1 ? h : 0);
    const int* tile = seen + (long long)list * pages * tiles + t;
    int count = 0;
    for (int p = 0; p < pages && count < longest; ++p) {
      if (tile[(long long)p * tiles] != 0) put(b, h, n * longest + count++, p);
    }
    lengths[n] = count * page;
    for (; count < longest; ++count) put(b, h, n * longest + count, 0);
  }
};

}  // namespace kernels
