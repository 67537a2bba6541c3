// Random bits of dropout: Philox4x32 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

#include "compiler/ir/attention.h"

namespace attn::reference {

// The standard has ten rounds. The counter and the key have their lowest word first.
inline constexpr int kRounds = 10;
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key, int rounds = kRounds);

// An element of the weights [B, Hq, Sq, Skv].
struct Weight {
  std::uint32_t b = 0, h = 0, q = 0, kv = 0;
};

// Which weights random dropout keeps. The numbers depend on the seed, the offset and the weight's
// four indices, on no size:
//
//   key      words 0 and 1 of philox({offset, 0}, seed), for 64-bit offset and seed
//   words    philox({kv / 32 * 4 + kv % 8 / 2, q, h, b}, key), for 8 weights: 4 pairs of neighbours
//            that are 8 apart
//   number   15 bits: the low ones of word kv / 8 % 4, or of its upper half if kv is odd
//
// A weight is kept if its number is at least dropout.dropped().
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t offset);
  std::int64_t number(const Weight& weight) const;
  bool keeps(const Weight& weight, const ir::Dropout& dropout) const;

 private:
  std::array<std::uint32_t, 2> key_;
};

}  // namespace attn::reference
