// Kernels over rows of scores (compiler/device/attn/rows.cuh).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/scores.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Threads per row of scores: a warp, or 8 if there are few columns (a multiple of 8).
std::int64_t lanes_of(std::int64_t columns);

// The fields of kernels::Rows, over the rows of the attention or of the tile.
std::vector<codegen::Field> row_fields(const ir::Attention& attention, std::int64_t lanes,
                                       codegen::KernelText& kernel,
                                       const std::optional<codegen::RowTile>& tile = {});

// `kept`, an i32 tensor, and `keep_scale`; nothing if the name is empty.
std::vector<codegen::Field> kept_fields(const ir::Attention& attention, const std::string& kept,
                                        codegen::KernelText& kernel);

// The kernel of weights that depend on their own score each, and its class `name`.
inline constexpr const char* kPointwiseFile = "pointwise.cuh";
std::string pointwise_class(std::string_view name, const ir::Attention& attention);
// What the weights are, in words.
const char* weights_in_words(const ir::Attention& attention);

// `turns` consecutive tiles of `rows` rows each, from row `first` on.
struct RowTurns {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t turns = 1;
  bool operator==(const RowTurns&) const = default;
};

// Splits `rows` rows into tiles of at most `most` (below `rows`) and at least one row: equal tiles
// if that takes at most twice as many, else a loop of equal tiles and a smaller last one.
std::vector<RowTurns> in_turns(std::int64_t rows, std::int64_t most);

// What row_kernel() reads and makes: names of tensors; empty if absent.
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
