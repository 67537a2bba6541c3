// Random dropout: Philox4x32 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011) in the numbering of compiler/reference/philox.h.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

constexpr int kDropoutRounds = 10;

template <int kRounds>
ATTN_INLINE uint4 philox(uint4 counter, uint2 key) {
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const unsigned long long x = (unsigned long long)counter.x * 0xD2511F53u;
    const unsigned long long y = (unsigned long long)counter.z * 0xCD9E8D57u;
    counter = make_uint4((unsigned)(y >> 32) ^ counter.y ^ key.x, (unsigned)y,
                         (unsigned)(x >> 32) ^ counter.w ^ key.y, (unsigned)x);
    key.x += 0x9E3779B9u, key.y += 0xBB67AE85u;
  }
  return counter;
}

// The key of the numbers that belong to a seed and an offset.
ATTN_INLINE uint2 dropout_key(unsigned long long seed, unsigned long long offset) {
  const uint4 words =
      philox<kDropoutRounds>(make_uint4((unsigned)offset, (unsigned)(offset >> 32), 0, 0),
                             make_uint2((unsigned)seed, (unsigned)(seed >> 32)));
  return make_uint2(words.x, words.y);
}

// All ones in each half of a word whose lower 15 bits are at least kDropped.
template <int kDropped>
ATTN_INLINE unsigned kept_halves(unsigned word) {
  if constexpr (kDropped <= 0x7c00) return halves_at_least(word, kDropped * 0x10001);
  else return halves_below(~word, (0x8000 - kDropped) * 0x10001);
}

}  // namespace kernels
