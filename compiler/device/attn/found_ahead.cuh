// Rows of blocks that are found before their turn.
#pragma once

namespace kernels {

// `Rows` of a block of kRows, of blocks one after another: while one is copied, what finds the one
// behind it is read. A thread keeps it from block to block.
template <class Rows, int kRows>
struct FoundAhead : Rows {
  Rows next;             // of the block behind
  int expected = kNone;  // where that begins
  static constexpr int kNone = -1;

  // Forgets what was found: blocks of another tile follow.
  __device__ void begin() { expected = kNone; }

  // The block at `at`; find_rows(rows, at) finds any.
  template <class Find>
  __device__ void find(int at, const Find& find_rows) {
    if (at != expected) find_rows(next, at);
    static_cast<Rows&>(*this) = next;
    expected = at + kRows;
    find_rows(next, expected);
  }
};

}  // namespace kernels
