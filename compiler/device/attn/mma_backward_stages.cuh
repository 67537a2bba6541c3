// Shared memory of the backward by warps (mma_backward.cuh): stages and words, but no barriers.
#pragma once

#include "attn/backward_stages.cuh"

namespace kernels {

// Addresses in shared memory. Matrices are rows in swizzled panels (mma_panels.cuh). dS^T, with
// several row groups P^T, and a table are rows of keys with the block's rows of q in a panel. With
// kShort there are as many stages of keys as of rows.
template <class C>
struct BackwardStages<C, true> {
  static constexpr int kKeys = C::kKeys, kStages = C::kStages;
  static constexpr int kWarps = kKeys / 16 * C::kRowGroups, kThreads = 32 * kWarps;
  static constexpr int kKeyStages = C::kShort ? kStages : 1;
  static constexpr int kStepWords = 4;    // number of steps whose words are kept
  static constexpr bool kClears = false;  // copies write zeros past the lengths
  static constexpr int kDepthPanels = (C::kDepth + C::kDepthPanel - 1) / C::kDepthPanel;
  static constexpr int kWidthPanels = (C::kWidth + C::kWidthPanel - 1) / C::kWidthPanel;
  static constexpr int kDepthRow = 2 * C::kDepthPanel, kWidthRow = 2 * C::kWidthPanel;
  static constexpr int kSlopeRow = 2 * C::kBlockRows;
  // Bytes of panels.
  static constexpr int kKeyPanel = kKeys * kDepthRow, kValuePanel = kKeys * kWidthRow;
  static constexpr int kQueryPanel = C::kBlockRows * kDepthRow;
  static constexpr int kGradientPanel = C::kBlockRows * kWidthRow;

  static constexpr int kKeyBytes = kDepthPanels * kKeyPanel;
  static constexpr int kValueBytes = kWidthPanels * kValuePanel;
  static constexpr int kQueryBytes = kDepthPanels * kQueryPanel;
  static constexpr int kGradientBytes = kWidthPanels * kGradientPanel;
  static constexpr int kSlopeBytes = kKeys * kSlopeRow;
  static constexpr int kRowBytes = C::kBlockRows * 4;
  static constexpr bool kStoresWeights = C::kRowGroups > 1;
  // What random dropout keeps, of two steps: DrawerOfStep draws for 64 keys at least.
  static constexpr int kDrawn = C::kRandom ? 2 : 0, kDrawers = kWarps;
  static constexpr int kDrawnBytes = (kKeys + 63) / 64 * 64 * 16;

  static constexpr int kQueries = kKeyStages * (kKeyBytes + kValueBytes);
  static constexpr int kGradients = kQueries + kStages * kQueryBytes;
  // With kShort rows of o, as those of dO.
  static constexpr int kOutputs = kGradients + kStages * kGradientBytes;
  static constexpr int kSlopes = kOutputs + (C::kShort ? kStages * kGradientBytes : 0);
  static constexpr int kWeights = kSlopes + kSlopeBytes;
  static constexpr int kTable = kWeights + (kStoresWeights ? kSlopeBytes : 0);
  static constexpr int kRowValues = kTable + (C::kTable ? kSlopeBytes : 0);
  // Exponents and deltas; with kShort exponents and gradients by lse, of which deltas are made.
  static constexpr int kDeltas = kRowValues + 2 * kStages * kRowBytes;
  static constexpr int kDraws = kDeltas + (C::kShort ? kRowBytes : 0);
  static constexpr int kWords = kDraws + kDrawn * kDrawnBytes;
  static constexpr int kScratch = kWords + 64 + 16 * kStepWords + 16;
  static constexpr int kScratchBytes = WarpScores<C::kBlockRows / C::kRowGroups / 2>::kScratch * 4;
  static constexpr int kBytes = kScratch + (C::kDiagonals ? kWarps * kScratchBytes : 0);

  unsigned base;

  __device__ unsigned keys(int n = 0) const { return base + n * (kKeyBytes + kValueBytes); }
  __device__ unsigned values(int n = 0) const { return keys(n) + kKeyBytes; }
  __device__ unsigned query(int n) const { return base + kQueries + n * kQueryBytes; }
  __device__ unsigned gradient(int n) const { return base + kGradients + n * kGradientBytes; }
  __device__ unsigned slopes() const { return base + kSlopes; }
  __device__ unsigned weights() const { return base + kWeights; }
  __device__ unsigned table() const { return base + kTable; }
  __device__ unsigned exponents(int n) const { return base + kRowValues + n * kRowBytes; }
  __device__ unsigned deltas(int n) const { return exponents(kStages + n); }
  // With kShort: of a stage, and of the step.
  __device__ unsigned output(int n) const { return base + kOutputs + n * kGradientBytes; }
  __device__ unsigned lse_gradients(int n) const { return exponents(kStages + n); }
  __device__ unsigned deltas_of_step() const { return base + kDeltas; }
  __device__ unsigned drawn(unsigned step) const { return base + kDraws + step % 2 * kDrawnBytes; }
  // Words, as those of warp groups.
  __device__ unsigned item_words() const { return base + kWords; }
  __device__ unsigned power_word() const { return item_words() + 60; }
  __device__ unsigned list_word(int i) const { return item_words() + 12 + 4 * i; }
  __device__ unsigned step_words(unsigned step) const {
    return item_words() + 64 + step % kStepWords * 16;
  }
  // The key of random dropout.
  __device__ unsigned random_words() const { return step_words(0) + 16 * kStepWords; }

  __device__ float* scratch(int warp) const {
    unsigned char* const first = shared_memory() + (base - shared_address(shared_memory()));
    return reinterpret_cast<float*>(first + kScratch + warp * kScratchBytes);
  }

  // The stage of a step.
  static __device__ __forceinline__ int stage_of(unsigned step) {
    return kStages == 1 ? 0 : (int)(step & 1);
  }
};

}  // namespace kernels
