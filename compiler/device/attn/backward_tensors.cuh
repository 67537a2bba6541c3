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
  const TensorMap *q = nullptr, *k = nullptr, *v = nullptr, *d_o = nullptr;
  // Instead of maps, of kernels of warps.
  const unsigned short *query_rows = nullptr, *key_rows = nullptr, *value_rows = nullptr,
                       *gradient_rows = nullptr;
  // Where batches begin, if q or dO is packed, and if k or v is (packed_rows.cuh).
  const int *row_starts = nullptr, *column_starts = nullptr;
  // [B, Hq, kPaddedRows]: -lse log2(e), -inf in empty rows; delta.
  const float *exponents = nullptr, *deltas = nullptr;
  // [B, Hq, kDepth / 16, kPaddedRows / 8, 32, 4], see QuerySums
  float* query_sums = nullptr;
  int* turns = nullptr;  // [B, Hq, kRowBlocks], 0 at first: the block of keys that adds next
  void *dk = nullptr, *dv = nullptr;  // GradientBits
  // Bits of largest magnitudes, with kNarrow, 0 at first.
  unsigned *amax_dp = nullptr, *amax_dk = nullptr, *amax_dv = nullptr;
  // Instead of exponents, deltas and sums, of kernels of few keys (mma_short_backward.cuh): what
  // the forward knows of rows, null without a maximum; the gradient by it, null without one; dQ.
  const float *lse = nullptr, *d_lse = nullptr;
  unsigned short* dq = nullptr;
  const unsigned short *output_rows = nullptr, *table_rows = nullptr;
  float* key_sums = nullptr;  // of parts: [parts, kKeys, kDepth + kWidth], dK before dV
  // [.., B, Hq, kKeyBlocks, kPartsOfBlock], 0 at first: parts of learned tensors of heads.
  float* parts = nullptr;
  int* counter = nullptr;  // 0 at first
  const TensorMap* table = nullptr;
  // Sums of other learned tensors: Largest, then ExactSums or FixedSums of each, 0 at first.
  unsigned long long* words = nullptr;
  void* own[kMostOwn] = {};  // gradients of learned tensors, 0 where no block of scores is
};

}  // namespace kernels
