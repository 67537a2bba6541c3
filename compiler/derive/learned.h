// The gradients of learned tensors: sums over all scores, or rows, at which an element is read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/derive/row_tile.h"
#include "compiler/gradient/differentiate.h"
#include "runtime/plan/program.h"

namespace attn::derive {

// Names of tensors that are read, and one extent; those of scores, or of rows, only where a tensor
// has gathers there. Where there is a tile, [n,T] stands in place of [B,Hq,Sq].
struct LearnedTensors {
  std::string products;      // f32 [B,Hq,Sq,columns], q k^T before the scale
  std::string modified;      // f32 [B,Hq,Sq,columns], dS', 0 where hidden
  std::int64_t columns = 0;  // Skv or more
  std::string lse;           // f32 [B,Hq,Sq], -inf in rows that there are not
  std::string deltas;        // f32 [B,Hq,Sq], delta
  std::optional<RowTile> tile{};
};

// Without a tile, `steps` alone. With one, these add what is in the tile, and are the same in every
// turn; `before` and `after` run once, before the first tile and after the last, and are the same
// whatever the tile is, and so are the internal tensors.
struct LearnedSteps {
  std::vector<plan::TensorInfo> internals;
  std::vector<plan::DeriveStep> before, steps, after;
};

// What makes the output d_NAME of each of Derivatives::tensors, in the tensor's dtype.
//
// The same whatever the order in which threads run: sums are integers. A first kernel finds the
// largest part of each element; with it the parts become multiples of a power of two, so small that
// the sum of N parts fits in 64 bits: each is off by at most 2^(log2(N) - 61) of the largest one.
// An element with a part that is NaN or infinite becomes NaN. The sums of tiles are added in
// double, in the order of the tiles.
LearnedSteps learned_steps(const gradient::Derivatives& derivatives, const LearnedTensors& tensors);

// What those internal tensors take, with tiles.
std::int64_t learned_bytes(const gradient::Derivatives& derivatives);

}  // namespace attn::derive
