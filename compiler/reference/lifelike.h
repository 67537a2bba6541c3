// Random values for captured tensors that look like what such tensors hold in practice.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::reference {

// Elements of an integer or boolean tensor of these dims, row-major; the same for the same seed.
// What they are follows from the shape:
//   last extent Sq or Skv, integers   ids of documents of various lengths, sorted; at most the
//                                     declared `runs`, none longer than the declared `longest_run`
//   other integers, monotone          offsets: 0, .., Skv
//   other integers                    lengths, from an eighth to all of Skv (q: of Sq)
//   booleans of rank 1 or [B, S]      a few that are true, the first among them
//   other booleans                    maps of blocks: a third, and the diagonal
// Dimensions must be bound.
std::vector<double> lifelike(const ir::Attention& attention, const ir::CapturedTensor& tensor,
                             const std::vector<std::int64_t>& dims, std::uint64_t seed);

}  // namespace attn::reference
