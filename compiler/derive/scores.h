// The scores as a tensor, for a program without a fused kernel.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/derive/expression_writer.h"
#include "compiler/derive/row_tile.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::derive {

// Names of tensors, and one extent. Where there is a tile, [n,T] stands in place of [B,Hq,Sq].
struct ScoreTensors {
  std::string products;      // read: f32 [B,Hq,Sq,columns], q k^T before the scale
  std::int64_t columns = 0;  // Skv or more
  std::string scores;        // made: f32 [B,Hq,Sq,Skv], -inf where a mask hides
  std::string kept;          // made: i32 [B,Hq,Sq,Skv], if the attention has a keep mask
  std::string sinks;         // made: f32 [Hq], if it has a sink
  std::optional<RowTile> tile{};
};

// One step that makes them at every execute: the values are the reference's, reals computed in
// double. It reads captured tensors and params as they are bound. Lengths hide nothing yet.
plan::DeriveStep scores_step(const ir::Attention& attention, const ScoreTensors& tensors);

// Starts a block of the writer over the scores [B,Hq,Sq,extent] in which the score is the scaled
// element of "products", as above. `row`: text, the row of the products; that of [B,Hq,Sq] unless
// it is given.
void begin_scores(ExpressionWriter& writer, const ir::Attention& attention, std::int64_t extent,
                  std::int64_t columns, const std::string& row = "");

// Gives the program, whose tensors are complete, what is looked for when they are bound.
void check_scores(const ir::Attention& attention, plan::Program& program);

}  // namespace attn::derive
