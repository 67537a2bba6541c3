// Softmax, or sigmoid, as a generated kernel.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Names of tensors; empty if absent.
struct RowTensors {
  std::string scores;   // read: f32 [B,Hq,Sq,Skv]
  std::string sinks;    // read: f32 [Hq]
  std::string kept;     // read: i32 [B,Hq,Sq,Skv], with the probability of the dropout clause
  std::string weights;  // made: [B,Hq,Sq,columns] of the attention's dtype, 0 past Skv
  std::int64_t columns = 0;
};

// One step that writes the weights and the statistics that the attention wants: "lse", "max",
// "sum_exp" and those with the sink. A warp, or 8 threads if there are few columns, computes a row:
// exponentials in f32, sums in f64. Scores past the lengths count as hidden, rows past them as
// empty.
plan::DeriveStep row_kernel(const ir::Attention& attention, const RowTensors& tensors);

}  // namespace attn::engines
