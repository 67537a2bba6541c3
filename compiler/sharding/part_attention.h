// A part of an attention as an attention of its own: what a rank's kernel computes.
#pragma once

#include <map>
#include <string>

#include "compiler/ir/attention.h"
#include "compiler/sharding/sets.h"
#include "compiler/sharding/sharding.h"

namespace attn::sharding {

// The attention of `rows` and `keys`, gathered in ascending order, and of some heads. Score, masks,
// dropout and sink see the indices of the whole attention: begin + index where these are adjacent,
// a few of such cases, or an element of `numbers`. Captured tensors are those of the whole
// attention. Lengths are masks, unless the part has all rows and keys.
struct PartAttention {
  ir::Attention attention;
  // Tensors i32[Sq] and i32[Skv] that it reads besides, by name: the numbers of its rows or keys.
  struct Numbers {
    ranks::Divided of = ranks::Divided::rows;
    std::vector<std::int64_t> values;
  };
  std::map<std::string, Numbers> numbers;
  // Tensors of the whole attention with another name in this one: lengths, which are masks, and
  // statistics with the sink where the part has none.
  std::map<std::string, std::string> renamed;
};

// `part` must have rows and keys. Dimensions must be bound. q, k, v and o are bshd.
PartAttention part_attention(const ir::Attention& whole, const Part& part, Interval key_heads);

}  // namespace attn::sharding
