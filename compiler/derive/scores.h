// The scores as a tensor, for a program without a fused kernel.
#pragma once

#include <string>
#include <vector>

#include "compiler/derive/expression_writer.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::derive {

// Names of tensors, and one extent.
struct ScoreTensors {
  std::string products;      // read: f32 [B,Hq,Sq,columns], q k^T before the scale
  std::int64_t columns = 0;  // Skv or more
  std::string scores;        // made: f32 [B,Hq,Sq,Skv], -inf where a mask hides
  std::string kept;          // made: i32 [B,Hq,Sq,Skv], if the attention has a keep mask
  std::string sinks;         // made: f32 [Hq], if it has a sink
};

// One step that makes them at every execute: the values are the reference's, reals computed in
// double. It reads captured tensors and params as they are bound. Lengths hide nothing yet.
plan::DeriveStep scores_step(const ir::Attention& attention, const ScoreTensors& tensors);

// Starts a block of the writer over the scores [B,Hq,Sq,extent] in which the score is the scaled
// element of "products", as above.
void begin_scores(ExpressionWriter& writer, const ir::Attention& attention, std::int64_t extent,
                  std::int64_t columns);

// Gives the program, whose tensors are complete, what is looked for when they are bound.
void check_scores(const ir::Attention& attention, plan::Program& program);

}  // namespace attn::derive
