// Parameters of the kernels that move and merge rows between ranks (compiler/device/attn/
// ranks.cuh). The runtime and the kernels include this same file, so it has no includes and only
// types that both have. All are passed by value, except the places of RanksMerge.
#pragma once

namespace attn::ranks {

// Bits of an element: as in kernels' F16, BF16 and float.
enum RanksType : int { kRanksF16 = 0, kRanksBF16 = 1, kRanksF32 = 2 };

// ---- attn_ranks_copy: rows from one tensor to another ----

inline constexpr int kRanksThreads = 256;  // of a block, in all kernels
inline constexpr int kMostRanksCopies = 38;
inline constexpr int kRanksCopyUnits = 4 * kRanksThreads;  // that a block copies, about

// Strides in bytes. A line is a row of a batch: `heads` pieces of `vectors` vectors.
struct RanksCopy {
  const void* from;
  void* to;
  const int* pairs;  // [rows][2]: from which row to which; null: row i to row i
  long long from_batch, from_row, from_head;
  long long to_batch, to_row, to_head;
  int rows, lines;     // lines: batches * rows
  int heads, vectors;  // vectors of a head's row
  int vector_bytes;    // 16, 8, 4, 2 or 1
  int lines_of_block, first_block;
  int reserved;
};

// `count` copies, that do not depend on each other; the blocks of each follow those before.
struct RanksCopies {
  RanksCopy copies[kMostRanksCopies];
  int count;
  int reserved;
};

// ---- attn_ranks_merge: rows from several contributions ----

// [B, heads, rows, width] or, of statistics, [B, heads, rows]; strides in elements, the width is
// contiguous. Null: there is none.
struct RanksTensor {
  void* data;
  long long batch, row, head;
};

// Some rows and heads of a result. Statistics are f32.
struct RanksPlace {
  RanksTensor values;  // o, or a gradient
  RanksTensor lse, max, sum_exp, max_with_sink, sum_exp_with_sink, lse_without_sink;
  int type;  // of values: RanksType
  int first_head, heads;
  int reserved;
};

// Which place a row is read from or written to: 0 is `home`, 1 the statistics of `home` alone, and
// n + 2 is places[n].
struct RanksEntry {
  int place, row;
};

// Item i of `rows` has entries first[i] .. first[i + 1] - 1: the row that is written, then the
// rows that are merged to it. Each of these has some of the heads.
//
//   weighted   L = log(sum of exp(lse)), o = sum of o exp(lse - L), and statistics likewise; where
//              lse is -inf, the values are not read. Of nothing: 0, and -inf.
//   otherwise  plain sums of values.
struct RanksMerge {
  RanksPlace home;
  const RanksPlace* places;
  const int* first;  // [rows + 1]
  const RanksEntry* entries;
  const int* lengths;              // [B]: rows whose number reaches it get nothing; null: none does
  const int* numbers;              // [rows], with lengths
  long long rows;                  // batches * rows * heads < 2^31
  int batches, first_head, heads;  // that are written
  int width;
  int vector;   // elements that a thread reads at once: 8, 4, 2 or 1; divides `width`
  int threads;  // of a row of a head: a power of two, up to 32
  int weighted;
  int uniform;  // all items have the entries of the first, i rows further
};

}  // namespace attn::ranks
