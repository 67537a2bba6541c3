// A captured table of a backward over few keys (mma_short_backward.cuh): the scores of all batches
// read the same elements, so that a block of threads brings those of a head to shared memory once.
#pragma once

#include "attn/backward_tensors.cuh"
#include "attn/mma_backward_stages.cuh"

namespace kernels {

template <class C>
struct TableOfHead {
  using S = BackwardStages<C>;
  static constexpr int kWords = C::kBlockRows / 2;  // of a key: two rows each

  const S stages;
  const BackwardTensors& tensors;
  int held = -1;  // the head whose elements are there

  // All threads of a block call it, when none reads what is there, and meet before they do. What
  // the table has not is 0.
  __device__ __forceinline__ void hold(int head) {
    const int next = C::kTableOfHead ? head % C::kHeads : 0;
    if (next == held) return;
    held = next;
    const unsigned short* const from = tensors.table_rows + (long long)held * C::kTableHead;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < S::kKeys * kWords; i += S::kThreads) {
      const int key = i % S::kKeys, row = i / S::kKeys * 2;
      const bool there = key < C::kColumns;
      const unsigned short* const at = from + (long long)row * C::kTableRow + key;
      const unsigned low = there && row < C::kRows ? *at : 0u;
      const unsigned high = there && row + 1 < C::kRows ? at[C::kTableRow] : 0u;
      store_shared(word_of(key, row), low | high << 16);
    }
  }

 private:
  // Where ThreadOfStrip::load_entries reads it.
  __device__ unsigned word_of(int key, int row) const {
    const int swizzle = key % 8 / (64 / C::kBlockRows) % (C::kBlockRows / 8);
    return stages.table() + key * S::kSlopeRow + ((row / 8) ^ swizzle) * 16 + row % 8 * 2;
  }
};

}  // namespace kernels
