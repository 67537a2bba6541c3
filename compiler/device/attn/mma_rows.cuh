// Rows in memory that all threads of a block copy to shared memory: elements of 16 bits, or of 8
// that become 16, adjacent or apart, which begin anywhere.
//
// Where strides let 4 bytes or more be copied at once, copies go to shared memory by themselves
// (cp.async). Elsewhere, and where elements are widened, a thread loads some vectors of 8 columns
// to registers and stores them: it waits for memory, but for some rows together.
#pragma once

#include "attn/mma.cuh"
#include "attn/widening.cuh"

namespace kernels {

// Rows of elements of `Stored` in memory: of Float, or of 8 bits that become Float. Elements of
// a row are kColumn apart; kStrides has the bits of all strides between rows.
template <class Stored_, class Float_, long long kColumn_, long long kStrides>
struct RowFormat {
  using Stored = Stored_;
  using Float = Float_;
  using Bits = typename Stored::Bits;
  static constexpr long long kColumn = kColumn_;
  static constexpr bool kNarrow = sizeof(Bits) == 1;
  // As many adjacent elements, at most 8, begin at a multiple of their size wherever a row begins.
  static constexpr int kVector = kColumn == 1 ? (int)((kStrides | 8) & -(kStrides | 8)) : 1;
  static constexpr bool kCopied = !kNarrow && kVector > 1;  // as they are, by cp.async
};

// Copies 8 columns, of which memory has `left` or all.
template <class Format>
ATTN_INLINE void copy_columns(unsigned to, const unsigned short* from, int left) {
  constexpr int kVector = Format::kVector;
#pragma unroll
  for (int i = 0; i < 8; i += kVector)
    copy_piece<2 * kVector>(to + 2 * i, from + i, 2 * min(max(left - i, 0), kVector));
}

// Copies what copy_rows() copies, by cp.async. `place`: of this thread's vector of row `first`.
template <int kAtOnce, int kRows, int kStored, int kNeeded, int kPanel, class Rows>
ATTN_INLINE void copy_rows_of_thread(unsigned place, int vector, int first, const Rows& rows) {
  using Format = typename Rows::Format;
#pragma unroll
  for (int n = 0; n < kRows; n += kAtOnce) {
    if (kRows % kAtOnce != 0 && first + n >= kRows) break;
    const bool has_row = rows.has(first + n);
    const auto* const from = rows.row(first, n) + vector * 8;
#pragma unroll
    for (int of_row = 0; of_row < kNeeded; of_row += 64) {
      const int column = of_row + vector * 8;
      const unsigned at = place + n * (2 * kPanel) + of_row * (kRows * 2);
      if (column >= kNeeded) continue;
      if constexpr (Format::kVector == 8 && kStored % 8 == 0)
        copy_vector(at, from + of_row, has_row && column < kStored);
      else
        copy_columns<Format>(at, from + of_row, has_row ? kStored - column : 0);
    }
  }
}

// 8 columns in registers, of rows with kStored.
template <class Format, int kStored>
struct LoadedColumns {
  using Bits = typename Format::Bits;
  static constexpr int kSize = sizeof(Bits), kWords = 2 * kSize, kOfWord = 4 / kSize;
  // Elements that are loaded at once: they end where a row does.
  static constexpr int kAtOnce = (Format::kVector | kStored) & -(Format::kVector | kStored);
  unsigned words[kWords];

  // Loads them, of which memory has `left` or all; the others are 0.
  __device__ __forceinline__ void load(const Bits* from, int left) {
    if constexpr (Format::kNarrow && kAtOnce == 8) {
      const uint2 both =
          left > 0 ? __ldg(reinterpret_cast<const uint2*>(from)) : make_uint2(0u, 0u);
      words[0] = both.x, words[1] = both.y;
    } else if constexpr (Format::kNarrow && kAtOnce == 4) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        words[i] = left > 4 * i ? *reinterpret_cast<const unsigned*>(from + 4 * i) : 0u;
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        constexpr unsigned kMask = (1u << 8 * kSize) - 1;  // of an integer's sign
        const unsigned bits = left > i ? (unsigned)from[i * Format::kColumn] & kMask : 0u;
        words[i / kOfWord] |= bits << i % kOfWord * (8 * kSize);
      }
    }
  }
  __device__ __forceinline__ void store(unsigned to) const {
    if constexpr (Format::kNarrow) {
      store_vector(to, widened(typename Format::Stored{}, typename Format::Float{}, words[0]),
                   widened(typename Format::Stored{}, typename Format::Float{}, words[1]));
    } else {
      store_vector(to, make_uint2(words[0], words[1]), make_uint2(words[2], words[3]));
    }
  }
};

// Loads and stores what copy_rows() copies; parameters are those of copy_rows_of_thread().
template <int kAtOnce, int kRows, int kStored, int kNeeded, int kPanel, class Rows>
ATTN_INLINE void load_rows(unsigned place, int vector, int first, const Rows& rows) {
  using Format = typename Rows::Format;
  constexpr int kTurns = (kNeeded + 63) / 64;
  constexpr int kSome = kTurns >= 4 ? 1 : 4 / kTurns;  // rows whose loads are on their way together
#pragma unroll 1
  for (int n = 0; n < kRows; n += kSome * kAtOnce) {
    LoadedColumns<Format, kStored> loaded[kSome][kTurns];
#pragma unroll
    for (int i = 0; i < kSome; ++i) {
      const int further = n + i * kAtOnce;
      const bool has = first + further < kRows && rows.has(first + further);
      const auto* const from = rows.row(first, has ? further : 0);
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int column = turn * 64 + vector * 8;
        loaded[i][turn].load(from + column * Format::kColumn, has ? kStored - column : 0);
      }
    }
#pragma unroll
    for (int i = 0; i < kSome; ++i) {
      const int further = n + i * kAtOnce;
      if (first + further >= kRows) break;
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        if (turn * 64 + vector * 8 < kNeeded)
          loaded[i][turn].store(place + further * (2 * kPanel) + turn * 64 * (kRows * 2));
      }
    }
  }
}

}  // namespace kernels
