// A thread of the backward kernel that computes: what it knows and holds. What it does with that
// are the layers backward_*.cuh, templates of the class below them; backward_gradients.cuh has
// their order.
#pragma once

#include "attn/backward_stages.cuh"
#include "attn/backward_tensors.cuh"
#include "attn/reals.cuh"
#include "attn/tile_runs.cuh"
#include "attn/transposed.cuh"

namespace kernels {

// What a warp group makes: dK and dS, dV and dQ, or all of them.
enum class Role { both, keys, values };

template <class C_, class E_>
struct BackwardThread {
  using C = C_;
  using E = E_;
  using Float = typename C::Float;
  using S = BackwardStages<C>;
  static constexpr bool kShared = S::kShared;
  static constexpr int kScores = C::kBlockRows / 2;
  // A warp group computes dQ of so many times 64 columns, in one or two parts, and, where there are
  // 64 in all and two compute it, of a half of the rows.
  static constexpr int kPanels = kShared ? C::kDepth / 64 : 1;
  static constexpr int kParts = kPanels > 1 ? 2 : 1;
  static constexpr int kPanelsOfPart = (kPanels + kParts - 1) / kParts;
  static constexpr bool kHalves = !kShared && C::kDepth == 64;
  static constexpr int kSumRows = kHalves ? C::kBlockRows / 2 : C::kBlockRows;
  static_assert(kShared || C::kDepth <= 128, "two warp groups, 64 columns each");

  static constexpr bool kLinear = E::kLinear || (E::kQuotient && !E::kExponential);

  const S stages;
  const BackwardTensors& tensors;
  const E& expressions;
  const int group;
  // What makes powers of 2 of products, or of modified scores; where weights are no
  // exponentials, scores.
  const float exponent;
  unsigned steps = 0;  // as those of the producer
  int key = 0;         // the first of this thread's two; the other is 8 further
  float dk[C::kDepth / 2], dv[C::kWidth / 2], s[kScores], dp[kScores];
  float dq[kPanelsOfPart][kSumRows / 2];
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
        exponent(expressions_.weight() * (kLinear ? 1.0f : kLog2E)) {}

  // Read again each time: all registers are taken.
  __device__ __forceinline__ static unsigned lane() { return thread_read_again() % 32; }
  __device__ __forceinline__ static unsigned warp() {  // of the group
    return thread_read_again() / 32 & 3;
  }
  __device__ __forceinline__ static unsigned shared_word(unsigned address) {
    return __shfl_sync(~0u, load_shared(address), 0);
  }
  __device__ __forceinline__ void release(unsigned full) {
    __syncwarp();
    if (lane() == 0) arrive(empty_of(full));
  }

  __device__ __forceinline__ static unsigned parity_of(unsigned step) { return step >> 1 & 1; }

  // The rows and head of a step.
  struct RowBlock {
    unsigned rows;           // the first, a multiple of 16, and kMasked
    int head;                // of all batches
    unsigned first_row = 0;  // of this thread's scores, in the block

    __device__ int b() const { return head / C::kHeads; }
    __device__ int h() const { return head % C::kHeads; }
    __device__ int first() const { return (int)(rows & kKeyBits); }
  };
  __device__ __forceinline__ RowBlock rows_of(unsigned step) const {
    return {shared_word(stages.step_words(step)), (int)shared_word(stages.step_words(step) + 4),
            (lane() & 3) * 2};
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

  // This lane's place in a matrix of rows of q that is stored as TMA does: panels of 64 keys, a row
  // of 128 bytes for each row of q, swizzled. Four matrices are 16 keys of 16 rows.
  __device__ __forceinline__ unsigned transposed(unsigned matrix) const {
    const unsigned panel = kShared ? 0 : group;
    return matrix + panel * (C::kBlockRows * 128) + (lane() & 7) * 128 + (lane() >> 4) * 1024 +
           ((warp() * 2 + (lane() >> 3 & 1) ^ lane() & 7) << 4);
  }
};

}  // namespace kernels
