// The gradients of learned tensors: sums over all scores, or rows, that read an element.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/scores.h"
#include "compiler/gradient/differentiate.h"
#include "runtime/plan/program.h"

namespace attn::codegen {

inline constexpr std::int64_t kRun = 32;  // rows per thread: kernels::Walk
inline constexpr int kBits = 61;          // of a sum of parts

// The number of a tensor's elements; dimensions must be bound.
std::int64_t elements_of(const ir::Attention& attention, const ir::CapturedTensor& tensor);

// Names of tensors that are read, and one extent; those of scores, or of rows, are needed only if a
// tensor has gathers there. With a tile, [n,T] replaces [B,Hq,Sq].
struct LearnedTensors {
  std::string products;      // f32 [B,Hq,Sq,columns], q k^T before the scale
  std::string modified;      // f32 [B,Hq,Sq,columns], dS', 0 where hidden
  std::int64_t columns = 0;  // Skv or more
  std::string lse;           // f32 [B,Hq,Sq], -inf in rows past the lengths
  std::string deltas;        // f32 [B,Hq,Sq], delta
  std::optional<RowTile> tile{};
};

// Without a tile, only `steps`. With one, these add the part of the tile and are the same in every
// turn; `before` and `after` run once, before the first tile and after the last. They and the
// internal tensors do not depend on the tile.
struct LearnedSteps {
  std::vector<plan::TensorInfo> internals;
  std::vector<plan::DeriveStep> before, steps, after;
};

// Steps that compute the output d_NAME of each of Derivatives::tensors, in the tensor's dtype.
//
// Results do not depend on the order of threads: sums are integers. A first kernel finds the
// largest part of each element; the parts are then rounded to multiples of a power of two such that
// the sum of N parts fits in 64 bits: each is off by at most 2^(log2(N) - 61) of the largest one.
// An element with a part that is NaN or infinite becomes NaN. The sums of tiles are added in
// double, in the order of the tiles.
LearnedSteps learned_steps(const gradient::Derivatives& derivatives, const LearnedTensors& tensors);

// The bytes of those internal tensors, with tiles.
std::int64_t learned_bytes(const gradient::Derivatives& derivatives);

}  // namespace attn::codegen
