// A thread of the backward kernel that computes: what it knows and holds, whatever makes its
// products. What it does with that are the layers backward_*.cuh, templates of the class below
// them; backward_layers.cuh has their order.
#pragma once

#include "attn/backward_stages.cuh"
#include "attn/backward_tensors.cuh"
#include "attn/reals.cuh"
#include "attn/tile_runs.cuh"
#include "attn/transposed.cuh"

namespace kernels {

template <class C_, class E_>
struct BackwardThread {
  using C = C_;
  using E = E_;
  using Float = typename C::Float;
  using S = BackwardStages<C>;
  static constexpr int kRowsOfWarp = C::kBlockRows / C::kRowGroups, kScores = kRowsOfWarp / 2;
  // Registers of dK and dV: warps that share keys have a part of the columns each.
  static constexpr int kKeyOutputs = C::kDepth / 2 / C::kRowGroups;
  static constexpr int kValueOutputs = C::kWidth / 2 / C::kRowGroups;

  static constexpr bool kLinear = E::kLinear || (E::kQuotient && !E::kExponential);

  const S stages;
  const BackwardTensors& tensors;
  const E& expressions;
  const int group;
  // What makes powers of 2 of products, or of modified scores; where weights are no
  // exponentials, scores.
  const float exponent;
  // With kNarrow, what products of modified scores are multiplied with first.
  const float of_products;
  unsigned steps = 0;  // as those of the producer
  int key = 0;         // the first of this thread's two; the other is 8 further
  float dk[kKeyOutputs], dv[kValueOutputs], s[kScores], dp[kScores];
  unsigned p[kScores / 2], ds[kScores / 2];
  float held[E::kHeld + 1][kScores];  // weights times the derivatives by elements; the last is none
  // With kQuotient, `s` has derivatives of weights and this those of the sum; terms of plain
  // scores, in `s`, say both again.
  static constexpr bool kKeepsTerms = E::kQuotient && E::kExponential && !E::kScore;
  float d_sum[E::kQuotient && !kKeepsTerms ? kScores : 1];
  static constexpr bool kDrops = E::kKeep || E::kRandom;
  unsigned kept[2] = {};  // what dropout keeps of a step: bit_of()

  __device__ __forceinline__ BackwardThread(const S& stages_, const BackwardTensors& tensors_,
                                            const E& expressions_, int group_)
      : stages(stages_),
        tensors(tensors_),
        expressions(expressions_),
        group(group_),
        exponent(expressions_.weight() * (kLinear ? 1.0f : kLog2E)),
        of_products(C::kNarrow && E::kScore ? expressions_.scale() : 1.0f) {}

  // Read again each time, where products of warp groups take all registers.
  __device__ __forceinline__ static unsigned thread() {
    return C::kOfWarps ? threadIdx.x : thread_read_again();
  }
  __device__ __forceinline__ static unsigned lane() { return thread() % 32; }
  __device__ __forceinline__ static unsigned warp() { return thread() / 32 & 3; }  // of the group
  __device__ __forceinline__ static unsigned shared_word(unsigned address) {
    return __shfl_sync(~0u, load_shared(address), 0);
  }
  // Which of the warps that share keys this is.
  __device__ __forceinline__ int row_group() const {
    return C::kRowGroups > 1 ? (group * 4 + (int)warp()) / (S::kKeys / 16) : 0;
  }
  // Where this thread's first two values are, of those that a block of rows has in shared memory.
  __device__ __forceinline__ unsigned row_values(unsigned of_block) const {
    return of_block + row_group() * (kRowsOfWarp * 4) + (lane() & 3) * 8;
  }

  // The deltas of a stage's rows.
  __device__ __forceinline__ unsigned deltas_of(int n) const { return stages.deltas(n); }

  // The rows of a step that the thread's warp has, and their head.
  struct RowBlock {
    unsigned rows;           // the first, a multiple of 16, and kMasked
    int head;                // of all batches
    unsigned first_row = 0;  // of this thread's scores, in the block

    __device__ int b() const { return head / C::kHeads; }
    __device__ int h() const { return head % C::kHeads; }
    __device__ int first() const { return (int)(rows & kKeyBits); }
  };
  __device__ __forceinline__ RowBlock rows_of(unsigned step) const {
    return {shared_word(stages.step_words(step)) + row_group() * kRowsOfWarp,
            (int)shared_word(stages.step_words(step) + 4), (lane() & 3) * 2};
  }

  // The row of score i: register 4 j + 2 r + e is row 8 j + 2 (lane % 4) + e and key `key` + 8 r.
  // The compiler sees the low bits of the row.
  __device__ __forceinline__ int row_of(const RowBlock& block, int i) const {
    const int first = block.first() + i / 8 * 16;
    return first | (i / 4 & 1) * 8 | block.first_row | (i & 1);
  }
  __device__ __forceinline__ int key_of(int i) const { return key + (i / 2 & 1) * 8; }
  // The row and the key within those that tensors have.
  __device__ __forceinline__ int held_row(const RowBlock& block, int i) const {
    return E::kReadsTensors ? min(row_of(block, i), C::kRows - 1) : row_of(block, i);
  }
  __device__ __forceinline__ int held_key(int i) const {
    return E::kReadsTensors ? min(key_of(i), C::kColumns - 1) : key_of(i);
  }
};

}  // namespace kernels
