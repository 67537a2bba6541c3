// Parameters of the kernels of append.cuh, control.cuh and merge.cuh. The runtime and the kernels
// include this same file, so it has no includes and only types that both have. All are passed by
// value.
#pragma once

namespace attn::operations {

enum Type : int { kF16 = 0, kBF16 = 1, kF32 = 2, kE4M3 = 3, kE5M2 = 4 };

inline constexpr int kThreads = 256;  // of a block, in all kernels

// ---- attn_append_rows ----

// Rows of k, v or q, and where they go. Strides in bytes. A unit is what a thread does at once:
// `elements` pairs of elements that are rotated, or `elements` that are not.
struct AppendPart {
  const void* from;
  void* to;
  const float* descale;  // null: 1
  long long from_row, from_head;
  long long to_page, to_row, to_head;
  int from_type, to_type;
  int heads;
  int elements;       // 8, 4, 2 or 1
  int rotated_units;  // of a head; they come first
  int units;          // of a head
  int paged;          // 0: row i goes to row i
  int rows_of_block, first_block;
  int reserved;
};

inline constexpr int kMostParts = 3;

// The blocks of each part follow those before.
struct AppendParameters {
  AppendPart parts[kMostParts];
  int count, rows;
  const long long* slots;  // [rows]; null: no part is paged
  unsigned slot_count, page_size;
  const void *cos, *sin;  // null: nothing is rotated
  const void* positions;  // [rows]
  long long cos_row, sin_row;
  int table_rows, table_type;
  int pairs;           // half of the elements of a head that are rotated
  int interleaved;     // elements 2 i and 2 i + 1 are a pair; otherwise i and pairs + i
  int wide_positions;  // i64; otherwise i32
  int reserved;
  int* outside;  // counts rows whose slot or position does not exist; may be null
};

// ---- attn_merge_results ----

// `count` results, each of rows and heads. Strides in elements.
struct MergeSource {
  const void* o;
  const float* lse;
  long long o_result, o_row, o_head;
  long long lse_result, lse_row, lse_head;
  int count, type;
};

struct MergeParameters {
  MergeSource sources[2];
  void* out;
  float* lse;  // may be null
  long long out_row, out_head;
  long long lse_row, lse_head;
  int rows, heads, width;  // rows * heads < 2^31
  int type;                // of out
  int elements;            // that a thread reads at once: 8, 4, 2 or 1; divides `width`
  int threads;             // of a row of a head: a power of two, up to 32
};

// ---- attn_check_control ----

// What a part may have wrong: a number of rows below 0 or beyond `most`; rows that begin below 0 or
// end before they begin; an entry of a page table outside of the pool.
enum ControlKind : int { kTooLong = 0, kFalls = 1, kOutside = 2 };
inline constexpr int kControlKinds = 3;
inline constexpr int kControlIndexBits = 48;

// Lengths of all sequences, and the pages that they use.
struct ControlPart {
  const int* lengths = nullptr;  // null: each has `most` rows
  const int* table = nullptr;    // null: none; strides in elements
  long long table_row = 0;
  long long most = 0;     // rows or keys of a sequence
  long long columns = 0;  // of the table, at least as many as `most` rows use
  int page_size = 1, pages = 0;
  int cumulative = 0;  // [sequences + 1]: sequence i has rows lengths[i] .. lengths[i + 1]
};

inline constexpr int kMostControlParts = 8;

struct ControlParameters {
  ControlPart parts[kMostControlParts];
  int count, sequences, blocks, reserved;
  const void* options;  // a plan::ScheduleOptions that says how many sequences are used; null: all
  // 0: nothing is wrong. Otherwise the inverse of ((part * kControlKinds + kind) <<
  // kControlIndexBits) + index: a sequence, or row * columns + column of a table; the first fault.
  unsigned long long* found;
};

}  // namespace attn::operations
