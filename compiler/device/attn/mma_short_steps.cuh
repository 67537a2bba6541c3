// The steps of a block of threads in a backward over few keys (mma_short_backward.cuh): adjacent
// heads of keys, of each the heads of queries that share it, of each the blocks of rows.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// A block of rows.
struct StepOfUnit {
  int item;       // in the order of heads of keys
  int unit;       // head of keys, of all batches
  int head;       // of all batches
  int row;        // the first
  bool is_first;  // of the unit
};

template <class C, class E>
struct OrderOfSteps {
  static constexpr int kUnits = C::kBatches * C::kKeyHeads;

  const E& expressions;
  const int end;  // the item after those of this block of threads

  __device__ __forceinline__ explicit OrderOfSteps(const E& expressions_)
      : expressions(expressions_), end(first_item(blockIdx.x + 1)) {}

  __device__ StepOfUnit first() const { return of_item(first_item(blockIdx.x)); }
  __device__ bool is_over(const StepOfUnit& step) const { return step.item >= end; }
  // Whether a step is the last of its unit, before `next`.
  __device__ static bool is_last(const StepOfUnit& step, const StepOfUnit& next) {
    return step.item != next.item;
  }

  __device__ StepOfUnit next(StepOfUnit step) const {
    step.is_first = false;
    step.row += C::kBlockRows;
    if (step.row < rows(step.head / C::kHeads)) return step;
    step.row = 0;
    if (C::kHeadsOfKey > 1 && ++step.head % C::kHeadsOfKey != 0) return step;
    return of_item(step.item + 1);
  }

 private:
  // Blocks of threads have as many units, or one more.
  static __device__ int first_item(int block) {
    return (int)((long long)kUnits * block / gridDim.x);
  }
  // Units of a batch follow each other, or those of a head (kBatchesFirst).
  static __device__ StepOfUnit of_item(int item) {
    const int unit =
        C::kBatchesFirst ? item % C::kBatches * C::kKeyHeads + item / C::kBatches : item;
    return {item, unit, unit * C::kHeadsOfKey, 0, true};
  }
  // Rows whose gradients are stored: past the end of a packed sequence there are none.
  __device__ int rows(int b) const {
    if constexpr (C::kRows <= C::kBlockRows) return 0;
    if constexpr (C::Queries::kPacked) return expressions.queries(b);
    return C::kRows;
  }
};

}  // namespace kernels
