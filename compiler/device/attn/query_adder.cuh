// The thread of the backward kernel that adds dQ in turns.
#pragma once

#include "attn/backward_stages.cuh"
#include "attn/backward_tensors.cuh"
#include "attn/tile_runs.cuh"
#include "attn/transposed.cuh"

namespace kernels {

// One thread. If sums are ordered, it adds dQ of each step, which the warp groups hand over: they
// do not wait for the turn.
template <class C>
struct QueryAdder {
  using S = BackwardStages<C>;
  const S stages;
  const BackwardTensors& tensors;

  __device__ void run() const {
#pragma unroll 1
    for (unsigned step = 0;; ++step) {
      wait(stages.sums_full(), step & 1);
      const unsigned rows = load_shared(stages.step_words(step));
      if (rows == kEndOfStream) break;
      const int first = (int)(rows & kKeyBits);
      if (first < C::kRows)
        add(step, load_shared(stages.step_words(step) + 4), first);
      else
        arrive(empty_of(stages.sums_full()));
    }
    wait_for_sums();
  }

 private:
  __device__ void add(unsigned step, int head, int first) const {
    int* const turn = tensors.turns + head * C::kRowBlocks + first / C::kBlockRows;
    wait_for_turn(turn, load_shared(stages.step_words(step) + 8));
    float* to =
        tensors.query_sums + ((long long)head * (C::kDepth / 16) * C::kPaddedRows + first) * 16;
#pragma unroll 1
    for (int columns = 0; columns < C::kDepth / 16; ++columns) {
      add_floats(to, stages.sums(columns), C::kBlockRows * 64);
      to += C::kPaddedRows * 16;
    }
    const int next = load_shared(stages.step_words(step) + 12);
    wait_for_reads();
    arrive(empty_of(stages.sums_full()));
    wait_for_sums();
    pass_turn(turn, next);
  }
};

}  // namespace kernels
