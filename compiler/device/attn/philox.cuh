// Random dropout: Philox4x32 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011) in the numbering of compiler/reference/philox.h.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

constexpr int kDropoutRounds = 10;

// Philox of several counters, whose multiplications alternate.
template <int kRounds, int kCount>
ATTN_INLINE void philox(uint4 (&counters)[kCount], uint2 key) {
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      uint4& counter = counters[n];
      const uint2 x = wide_product(counter.x, 0xD2511F53u);
      const uint2 y = wide_product(counter.z, 0xCD9E8D57u);
      counter = make_uint4(y.y ^ counter.y ^ key.x, y.x, x.y ^ counter.w ^ key.y, x.x);
    }
    key.x += 0x9E3779B9u, key.y += 0xBB67AE85u;
  }
}
template <int kRounds>
ATTN_INLINE uint4 philox(uint4 counter, uint2 key) {
  uint4 counters[1] = {counter};
  philox<kRounds>(counters, key);
  return counters[0];
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
  if constexpr (kDropped <= 0x7c00)
    return halves_at_least(word, kDropped * 0x10001);
  else
    return halves_below(~word, (0x8000 - kDropped) * 0x10001);
}

// The counter of a call, which is of 8 of 32 keys: `keys` / 4 is which 32, `keys` % 4 which 8.
// Where this attention is a part of another one, the indices are those of the whole
// (E::drawn_row(..)).
template <class E>
ATTN_INLINE uint4 dropout_counter(const E& expressions, unsigned keys, unsigned row, unsigned head,
                                  unsigned batch) {
  if constexpr (E::kIsPart) {
    const unsigned key = expressions.drawn_column(keys / 4 * 32);
    return make_uint4(key / 8 + keys % 4, expressions.drawn_row(row), expressions.drawn_head(head),
                      batch);
  } else {
    return make_uint4(keys, row, head, batch);
  }
}

}  // namespace kernels
