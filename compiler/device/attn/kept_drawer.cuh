// Draws of random dropout in the backward, by all lanes of a warp, and the warps that have no other
// task.
#pragma once

#include "attn/backward_stages.cuh"
#include "attn/philox.cuh"
#include "attn/tile_runs.cuh"
#include "attn/transposed.cuh"

namespace kernels {

// Draws a share of what random dropout keeps of a step, in the numbering of
// ForwardDropout::drop_at_random: the words of a call are of a row and 2 keys of each 8 of 32. All
// drawers of a block of threads draw all of it, a bit for each score.
template <class C, class E>
struct DrawerOfStep {
  using S = BackwardStages<C>;
  const S stages;
  const E& expressions;
  const int drawer;

 protected:
  static __device__ unsigned lane() { return thread_read_again() % 32; }

  // At a time, a warp draws for 64 keys and 8 rows. A lane has 2 of the rows, and 8 of 32 keys: of
  // these, adjacent ones are those of threads of a warp group that are 4 apart.
  __device__ __forceinline__ void draw(unsigned step, uint2 random_key) const {
    const unsigned words = stages.step_words(step);
    const unsigned first_key = (load_shared(words + 12) - 1) * S::kKeys + lane() / 16 * 32;
    const unsigned row = (load_shared(words) & kKeyBits) + lane() % 4 * 2;
    const unsigned to =
        stages.drawn(step) + lane() / 16 * 512 + lane() / 4 % 4 * 64 + lane() % 4 * 8;
#pragma unroll 1
    for (int keys = 0; keys < S::kKeys; keys += 64) {
      const unsigned counter = (first_key + keys) / 8 + lane() / 4 % 4;
#pragma unroll 1
      for (int i = drawer; i < C::kBlockRows / 8; i += S::kDrawers) {
        draw_rows(counter, row + i * 8, words, random_key, to + keys * 16 + i);
      }
    }
  }

  // Draws the bits of two rows: four bits for each of four threads, as BackwardDropout::is_kept
  // reads them.
  __device__ __forceinline__ void draw_rows(unsigned counter, unsigned row, unsigned words,
                                            uint2 random_key, unsigned to) const {
    const unsigned head = load_shared(words + 4), h = head % C::kHeads, b = head / C::kHeads;
    uint4 drawn[2] = {dropout_counter(expressions, counter, row, h, b),
                      dropout_counter(expressions, counter, row + 1, h, b)};
    philox<kDropoutRounds>(drawn, random_key);
    const uint4 &x = drawn[0], &y = drawn[1];
    store_bits(to, x.x, y.x, x.y, y.y);
    store_bits(to + 256, x.z, y.z, x.w, y.w);
  }
  static __device__ __forceinline__ void store_bits(unsigned to, unsigned x0, unsigned x1,
                                                    unsigned x2, unsigned x3) {
    const unsigned bits =
        kept_halves<E::kDropped>(x0) & 0x10001 | kept_halves<E::kDropped>(x1) & 0x20002 |
        kept_halves<E::kDropped>(x2) & 0x40004 | kept_halves<E::kDropped>(x3) & 0x80008;
    store_byte(to, bits);
    store_byte(to + 32, bits >> 16);
  }
};

// A warp that draws for each step. It is up to two steps ahead of the warp groups: further, the
// rows of a step are not known yet.
template <class C, class E>
struct KeptDrawer : DrawerOfStep<C, E> {
  using Base = DrawerOfStep<C, E>;
  using S = typename Base::S;
  using Base::stages, Base::expressions, Base::drawer, Base::lane, Base::draw;

  __device__ void run() const {
    const uint2 random_key = dropout_key(*expressions.seed(), *expressions.offset());
    int tails = 0;
#pragma unroll 1
    for (unsigned step = 0;; ++step) {
      wait(empty_of(stages.drawn_full(step)), step / 4 & 1);
      if (load_shared(stages.step_words(step)) == kEndOfStream) return;
      draw(step, random_key);
      __syncwarp();
      if (lane() == 0) arrive(stages.drawn_full(step));
      if constexpr (S::kClears) {
        if (drawer == 0) clear_tails(step, tails);
      }
    }
  }

 private:
  // Clears the tails of a step, whose copies it waits for; `tails` are those before.
  __device__ __forceinline__ void clear_tails(unsigned step, int& tails) const {
    const int end = tails + (int)((load_shared(stages.step_words(step)) & kTailBits) / kOneTail);
#pragma unroll 1
    for (; tails < end; ++tails) stages.tails().clear(tails);
  }
};

}  // namespace kernels
