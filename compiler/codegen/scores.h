// The scores as a tensor, for unfused programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/expression_writer.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::codegen {

// Tiles of score rows, for programs that keep scores in memory.
//
// Query heads that share keys form a group: B Hkv consecutive groups of Hq / Hkv * Sq rows, in the
// order of [B,Hq,Sq]. A tile has T adjacent rows of each of n adjacent groups, and tensors of its
// scores are [n,T,columns].
struct RowTile {
  std::int64_t groups = 1;      // n
  std::int64_t rows = 1;        // T
  std::int64_t group_rows = 1;  // Hq / Hkv * Sq
  plan::TensorOperand first;    // i64: the tile's first row of [B,Hq,Sq]
  bool again = false;  // a tile with at least as many rows came before, in the same tensors

  std::int64_t all_rows() const { return groups * rows; }

  // C++ text: the row of [B,Hq,Sq] of the tile's row `local` (a name). The kernel reads the tensor
  // `first` with this name.
  std::string row_text(const std::string& local) const;
};

// Names of tensors, and one extent. With a tile, [n,T] replaces [B,Hq,Sq].
struct ScoreTensors {
  std::string products;      // read: f32 [B,Hq,Sq,columns], q k^T before the scale
  std::int64_t columns = 0;  // Skv or more
  std::string scores;        // made: f32 [B,Hq,Sq,Skv], -inf where a mask hides
  std::string kept;          // made: i32 [B,Hq,Sq,Skv], if the attention has a keep mask
  std::string sinks;         // made: f32 [Hq], if it has a sink
  std::optional<RowTile> tile{};
};

// One step that computes them at every execute, with the values of the reference: reals in double.
// It reads captured tensors and params as bound. Lengths are not applied here.
plan::DeriveStep scores_step(const ir::Attention& attention, const ScoreTensors& tensors);

// Starts a block of the writer over the scores [B,Hq,Sq,extent], with the scaled element of
// "products" as the score. `row`: text of the row of the products; by default that of [B,Hq,Sq].
void begin_scores(ExpressionWriter& writer, const ir::Attention& attention, std::int64_t extent,
                  std::int64_t columns, const std::string& row = "");

// Text for KernelText::make: statements that compute the value of score i, of all or of a tile.
// `value` is of the writer after begin_scores, with the row "local" if there is a tile.
std::string of_score(const ExpressionWriter& writer, const std::optional<RowTile>& tile,
                     std::int64_t columns, const std::string& value);

// Sets the check of bound values of the program, whose tensors must be complete.
void check_scores(const ir::Attention& attention, plan::Program& program);

// Names of tensors, and one extent. With a tile, [n,T] replaces [B,Hq,Sq].
struct GradientTensors {
  std::string products;      // read: f32 [B,Hq,Sq,columns], q k^T before the scale
  std::string modified;      // read: f32 [B,Hq,Sq,columns], dS', 0 where hidden
  std::int64_t columns = 0;  // Skv or more
  std::string gradients;     // made: [B,Hq,Sq,columns] of the attention's dtype, 0 past Skv
  std::optional<RowTile> tile{};
};

// One step that computes dS' * Derivatives::score * scale; its product with k is dq. It is 0 where
// dS' is, whatever the derivative. Reals are computed in double.
plan::DeriveStep score_gradients_step(const gradient::Derivatives& derivatives,
                                      const GradientTensors& tensors);

}  // namespace attn::codegen
