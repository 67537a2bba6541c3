// The backward of softmax, or of sigmoid, as a generated kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/codegen/scores.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// The packed copies of o and do, whose rows are `stride` elements apart.
struct BoundOutputs {
  std::string o, d_o;
  std::int64_t stride = 0;
};

// Names of tensors; empty if absent. "lse" and "dlse" are read as bound. With a tile, [n,T]
// replaces [B,Hq,Sq], except of `whole`.
struct RowGradientTensors {
  std::string scores;      // read: f32 [B,Hq,Sq,Skv]
  std::string sinks;       // read: f32 [Hq]
  std::string kept;        // read: i32 [B,Hq,Sq,Skv], with the probability of the dropout clause
  std::string cotangents;  // read: f32 [B,Hq,Sq,columns], do v^T
  std::string modified;    // made: f32 [B,Hq,Sq,columns], dS', 0 where hidden and past Skv
  std::string weights;     // made: [B,Hq,Sq,columns] of the attention's dtype, P keep, 0 likewise
  std::string lse;         // made: f32 [B,Hq,Sq], -inf in rows past the lengths
  std::string deltas;      // made: f32 [B,Hq,Sq], 0 in empty rows
  std::int64_t columns = 0;
  std::optional<codegen::RowTile> tile{};
  std::optional<BoundOutputs> whole{};  // read: of a partial attention
};

// One step; a warp, or 8 threads if there are few columns, computes a row. Scores past the lengths
// count as hidden, rows past them as empty. Where rows have all of their keys here, two values are
// more accurate than what is bound:
//   - the weights are divided by their sum, including the sink's. It is 1 except for the rounding
//     of lse to f32: for lse near 16 an error of 1e-6, which all weights of a row share and sums
//     over it show
//   - delta is the sum of P keep dP over the row, in double. The sum of do o would be the same, but
//     with an o rounded to 8 or 11 bits
// Delta is less dlse where the attention reads_d_lse.
plan::DeriveStep row_gradients(const ir::Attention& attention, const RowGradientTensors& tensors);

// One step that computes `lse` and `deltas`, as above, from o and do. For programs without dP.
struct RowDeltaTensors {
  BoundOutputs whole;
  std::string lse, deltas;
};
plan::DeriveStep row_deltas(const ir::Attention& attention, const RowDeltaTensors& tensors);

// The same of an 8-bit attention, whose o and do are read as bound, with their scales.
plan::DeriveStep narrow_row_deltas(const ir::Attention& attention, const std::string& lse,
                                   const std::string& deltas);

}  // namespace attn::engines
