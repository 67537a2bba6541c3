// Dropout of the forward: by a mask of the spec, or at random.
#pragma once

#include "attn/philox.cuh"
#include "attn/tile_rows.cuh"
#include "attn/tile_runs.cuh"
#include "attn/wgmma.cuh"

namespace kernels {

// Drops weights.
template <class Base>
struct ForwardDropout : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Base::Base;
  using Base::expressions, Base::tile_words, Base::block, Base::first_row, Base::lane,
      Base::random_key, Base::kept, Base::s, Base::kOf8Bits, Base::kKeepsLargest, Base::kScores,
      Base::rows_of, Base::held_column;

  __device__ __forceinline__ void drop() {
    const TileRows<C> rows = rows_of(tile_words);
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int r = i / 2 & 1;
      s[i] = expressions.keep(rows.b, rows.h[r], rows.row(r), held_column(i)) ? s[i] : 0.0f;
      if constexpr (kKeepsLargest) kept[r] = fmaxf(kept[r], s[i]);
    }
  }

  // Random dropout of a block, for whole calls of the generator: a thread has pairs of columns of
  // four groups of 8. No branch is between the exponentials and this, so the assembler puts the
  // multiplications, which depend on no score, among them.
  template <int kCount>
  __device__ __forceinline__ void drop_at_random(unsigned (&packed)[kCount]) {
    static_assert(C::kKeys % 32 == 0, "a block has whole calls of the generator");
    TileRows<C> rows;  // of its own: what is computed of them would be kept from block to block
    rows.set(tile_words[0], tile_words[1], unknown(first_row));
    unsigned counter = (block & kKeyBits) / 8 + (lane & 3);
#pragma unroll
    for (int i = 0; i < kScores; i += 16) {
      unsigned last = 0;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint4 words = philox<kDropoutRounds>(
            dropout_counter(expressions, counter, rows.q[r], rows.h[r], rows.b), random_key);
        const unsigned halves[4] = {
            kept_halves<E::kDropped>(words.x), kept_halves<E::kDropped>(words.y),
            kept_halves<E::kDropped>(words.z), kept_halves<E::kDropped>(words.w)};
        last = halves[3];
        keep_halves(packed, i, r, halves);
      }
      counter += last == 1 ? 5 : 4;  // it never is: all calls at once would take more registers
    }
    pin(packed);
  }

  // Keeps halves of row r and the scores from `from` on: pairs of two columns of each of four
  // groups of 8.
  template <int kCount>
  __device__ __forceinline__ void keep_halves(unsigned (&packed)[kCount], int from, int r,
                                              const unsigned (&halves)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (kOf8Bits) {
        if (j % 2 == 0) {
          packed[from / 4 + r + j] &= __byte_perm(halves[j], halves[j + 1], 0x6420);
        }
      } else {
        packed[from / 2 + r + 2 * j] &= halves[j];
      }
      if constexpr (kKeepsLargest) {
        const int at = from + 4 * j + 2 * r;
        kept[r] = fmaxf(kept[r], halves[j] & 1 ? s[at] : 0);
        kept[r] = fmaxf(kept[r], halves[j] >> 31 ? s[at + 1] : 0);
      }
    }
  }
};

}  // namespace kernels
