// What the backward kernel reads and writes.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

constexpr int kPartsOfBlock = 8;  // one for each warp
template <class C>
constexpr long long kPartsOfTurn = (long long)C::kBatches* C::kHeads* C::kKeyBlocks* kPartsOfBlock;
constexpr int kMostOwn = 8;

// What the kernel reads and writes; gradients that are not wanted are null.
struct BackwardTensors {
  const TensorMap *q, *k, *v, *d_o;  // of packed tensors one for each batch (sequence_maps.cuh)
  const int* column_starts;          // the first key of each batch, if keys or values are packed
  const float *exponents, *deltas;  // [B, Hq, kPaddedRows]: -lse log2(e), -inf in empty rows; delta
  float* query_sums;  // [B, Hq, kDepth / 16, kPaddedRows / 8, 32, 4], see Gradients::add_queries
  int* turns;         // [B, Hq, kRowBlocks], 0 at first: the block of keys that adds next
  unsigned short *dk, *dv;
  float* key_sums;  // of parts: [parts, kKeys, kDepth + kWidth], dK before dV
  float* parts;  // [.., B, Hq, kKeyBlocks, kPartsOfBlock], 0 at first: of learned tensors of heads
  int* counter;  // 0 at first
  const TensorMap* table;
  // Sums of other learned tensors: Largest, then ExactSums or FixedSums of each, 0 at first.
  unsigned long long* words = nullptr;
  void* own[kMostOwn] = {};  // gradients of learned tensors, 0 where no block of scores is
};

}  // namespace kernels
