// Shared memory of the backward kernel: stages, barriers, words.
#pragma once

#include "attn/learned_parts.cuh"
#include "attn/tails.cuh"
#include "attn/turns.cuh"

namespace kernels {

// Addresses in shared memory: of kernels of warp groups, or of warps (mma_backward_stages.cuh).
template <class C, bool kOfWarps = C::kOfWarps>
struct BackwardStages;
template <class C>
struct BackwardStages<C, false> {
  static constexpr int kKeys = C::kKeys, kStages = 2;
  static constexpr bool kShared = kKeys == 64;  // both warp groups have the same keys
  // Number of steps whose words are kept: what adds dQ is some steps behind.
  static constexpr int kStepWords = 8;
  static constexpr int kKeyBytes = kKeys * C::kDepth * 2, kValueBytes = kKeys * C::kWidth * 2;
  static constexpr int kQueryBytes = C::kBlockRows * C::kDepth * 2;
  static constexpr int kGradientBytes = C::kBlockRows * C::kWidth * 2;
  static constexpr int kSlopeBytes = C::kBlockRows * kKeys * 2;
  static constexpr int kSumBytes = C::kBlockRows * C::kDepth * 4;
  static constexpr int kRowBytes = C::kBlockRows * 4;
  static constexpr int kTableBytes = C::kTable ? C::kBlockRows * kKeys * 2 : 0;
  // What random dropout keeps, of some steps: 8 bytes for each thread of the warp groups
  // (KeptDrawer).
  static constexpr int kDrawn = C::kRandom ? 4 : 0;
  static constexpr int kDrawnBytes = kKeys * 16;
  static constexpr int kDrawers = C::kOrdered ? 2 : 3;  // warps that draw it: those without a task
  static constexpr int kQueries = kKeyBytes + kValueBytes;
  static constexpr int kGradients = kQueries + kStages * kQueryBytes;
  static constexpr int kSlopes = kGradients + kStages * kGradientBytes;
  static constexpr int kTables = kSlopes + kStages * kSlopeBytes;
  static constexpr int kSums = kTables + kStages * kTableBytes;
  static constexpr int kRowValues = kSums + kSumBytes;
  static constexpr int kDraws = kRowValues + 2 * kStages * kRowBytes;
  static constexpr int kBarriers = kDraws + kDrawn * kDrawnBytes;
  static constexpr int kWords = kBarriers + 16 * (3 + 3 * kStages + kDrawn);
  static constexpr int kScratch = kWords + 64 + 16 * kStepWords;
  static constexpr int kScratchBytes = WarpScores<C::kBlockRows / 2>::kScratch * 4;  // of a warp
  static constexpr int kTails = kScratch + (C::kDiagonals ? kKeys / 16 * kScratchBytes : 0);
  // Rows past the lengths, which maps of sequences leave out.
  static constexpr bool kClears =
      (C::kLengths || C::kPadded) &&
      !(C::Queries::kPacked && C::Keys::kPacked && C::Values::kPacked && C::Outputs::kPacked);
  using RowTails = Tails<kClears ? 2 + 2 * kStages : 0>;
  static constexpr int kBytes = kTails + RowTails::kBytes;

  unsigned base;

  __device__ unsigned keys() const { return base; }
  __device__ unsigned values() const { return base + kKeyBytes; }
  __device__ unsigned query(int n) const { return base + kQueries + n * kQueryBytes; }
  __device__ unsigned gradient(int n) const { return base + kGradients + n * kGradientBytes; }
  __device__ unsigned slope(int n) const { return base + kSlopes + n * kSlopeBytes; }
  __device__ unsigned table(int n) const { return base + kTables + n * kTableBytes; }
  // The sums of 16 columns.
  __device__ unsigned sums(int columns) const {
    return base + kSums + columns * (C::kBlockRows * 64);
  }
  __device__ unsigned exponents(int n) const { return base + kRowValues + n * kRowBytes; }
  __device__ unsigned deltas(int n) const { return exponents(kStages + n); }
  // Barriers: those of keys are empty when values are, too.
  __device__ unsigned keys_full() const { return base + kBarriers; }
  __device__ unsigned values_full() const { return keys_full() + 16; }
  __device__ unsigned query_full(int n) const { return keys_full() + 16 * (2 + n); }
  __device__ unsigned gradient_full(int n) const { return query_full(kStages + n); }
  __device__ unsigned slope_full(int n) const { return gradient_full(kStages + n); }
  __device__ unsigned sums_full() const { return slope_full(kStages); }
  // "Empty" when the rows of the step are known.
  __device__ unsigned drawn_full(unsigned step) const { return sums_full() + 16 * (1 + step % 4); }
  __device__ unsigned drawn(unsigned step) const { return base + kDraws + step % 4 * kDrawnBytes; }
  // Words of the item: its unit (see kOfPart), block of keys, and number of steps. Words of a step:
  // its rows and head, whose turn to wait for, and the next one.
  __device__ unsigned item_words() const { return base + kWords; }
  // Largest::power, if learned tensors share elements.
  __device__ unsigned power_word() const { return item_words() + 60; }
  // The producer's own, see ListWord.
  __device__ unsigned list_word(int i) const { return item_words() + 12 + 4 * i; }
  __device__ unsigned step_words(unsigned step) const {
    return item_words() + 64 + step % kStepWords * 16;
  }

  __device__ RowTails tails() const { return {base + kTails}; }

  __device__ float* scratch(int warp) const {
    unsigned char* const first = shared_memory() + (base - shared_address(shared_memory()));
    return reinterpret_cast<float*>(first + kScratch + warp * kScratchBytes);
  }

  __device__ void init() const {
    constexpr int kWarps = 8, kWarpsOfRole = kShared ? 4 : kWarps;
    for (int n = 0; n < 2 + 3 * kStages; ++n) {
      const bool of_slopes = n >= 2 + 2 * kStages;
      init_barrier(keys_full() + 16 * n, of_slopes ? kWarpsOfRole : 1);
      init_barrier(keys_full() + 16 * n + 8, of_slopes ? kWarpsOfRole : kWarps);
    }
    init_barrier(sums_full(), kWarpsOfRole);
    init_barrier(sums_full() + 8, 1);
    for (int n = 0; n < kDrawn; ++n) {
      init_barrier(drawn_full(n), kDrawers);
      init_barrier(empty_of(drawn_full(n)), 1);
    }
    tails().init();
    publish_barriers();
  }
};

// Bits in the word of a step's rows, besides kMasked: how many tails the step has, if a warp that
// draws clears them.
constexpr unsigned kOneTail = 2, kTailBits = 7 * kOneTail;

}  // namespace kernels
