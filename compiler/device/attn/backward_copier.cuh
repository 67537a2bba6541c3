// The thread of the backward kernel that copies: what it knows. What it does with that are the
// layers below; backward_producer.cuh has their order.
#pragma once

#include "attn/backward_stages.cuh"
#include "attn/backward_tensors.cuh"

namespace kernels {

// One thread. It has few registers, because the warp groups need them: what it has to remember is
// in shared memory.
template <class C_, class E_, class L_>
struct RowCopier {
  using C = C_;
  using E = E_;
  using L = L_;
  using S = BackwardStages<C>;
  // Words of the item: its block of keys and the first one, its list, and where it is in that: the
  // next run or the one before it, blocks of that which are left, and of all; the turn of the run;
  // what item_words tell of the unit; and the first step. Words of all items: tails so far.
  enum ListWord {
    kBlock,
    kFirstKey,
    kFirstRun,
    kBlocks,
    kRun,
    kLeftOfRun,
    kBlocksLeft,
    kStepsLeft,
    kTurn,
    kUnit,
    kFirst,
    kTail
  };
  static constexpr int kLeastBlocks = C::kHeadsOfKey == 1 ? 2 : 1;  // two steps
  const S stages;
  const BackwardTensors& tensors;
  const E& expressions;
  const L& lists;
  // Steps so far: the next is in stage `steps` % 2. The highest bit changes with each item, and the
  // next tells that an item has begun.
  static constexpr unsigned kFirstStep = 1u << 30;
  unsigned steps = 0;

  __device__ void set(ListWord word, int value) const {
    store_shared(stages.list_word(word), value);
  }
  __device__ int get(ListWord word) const { return load_shared(stages.list_word(word)); }

  __device__ int last_head() const { return (int)load_shared(stages.step_words(steps) + 4); }

  // The lengths of the batch of a head, if they are shorter than the tensors.
  __device__ int queries_of(int head) const {
    return shorter_length(expressions.used_queries(head / C::kHeads), C::kRows);
  }
  __device__ int keys_of(int head) const {
    return shorter_length(expressions.used_keys(head / C::kHeads), C::kColumns);
  }
  static __device__ int shorter_length(int length, int size) {
    constexpr int kNone = 1 << 30;
    return S::kClears && length < size ? length : kNone;
  }
};

}  // namespace kernels
