// The text of the expressions that attnc's forward kernel computes: class E of attn/forward.cuh.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/expression_writer.h"
#include "compiler/engines/native/bands.h"
#include "compiler/engines/native/learned.h"
#include "compiler/engines/native/patches.h"
#include "compiler/engines/native/scoring.h"
#include "compiler/engines/native/tables.h"
#include "compiler/engines/native/tiles.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

// What a kernel computes of the attention's expressions.
struct Expressions {
  // Scores are modified, not only scaled. A scale that is not known to be positive is a
  // modification: the maximum of scores would not be that of scaled ones.
  bool modifies = false;
  Scoring scoring{};     // if they are
  bool bounded = false;  // exponentials need no maximum to be relative to
  // How many of 16 exponentials do without the special-function unit. Only scores that have a bound
  // have some: others would need a check, and registers.
  int polynomials = 0;
  std::optional<Table> table{};  // that is copied to shared memory
  std::optional<Grid> grid{};    // whose patches are tiles
  bool masks = false;            // some block needs the masks
  bool padded = false;           // masks hide all keys from a length of each batch on
  bool reads_columns = false;    // tensors are read by column
  // What columns are divided by, in masks: a power of 2, of which a block of keys has several. If
  // there is none, kCell.
  std::int64_t column_period = kCell;
  codegen::KernelInputs inputs;  // tensors and params, lengths among them
};
// The expressions of an attention without a grid. `masks`: they are evaluated; `table`: one is
// copied, if there is one whose rows begin at multiples of so many bytes.
Expressions expressions_of(const ir::Attention& attention, bool masks, bool table,
                           std::int64_t alignment = kAlignedForTma);

// What the backward kernel computes.
struct GradientExpressions {
  bool modifies = false;  // as above
  bool masks = false;
  bool padded = false;             // also if masks hide such rows
  bool reads_tensors = false;      // by row or column, besides the table
  std::optional<Table> table{};    // of 16-bit floats, which is copied to shared memory
  bool finite_slope = false;       // the score's derivative is finite wherever it is computed
  std::vector<LearnedPart> parts;  // of learned tensors that have a gradient
  codegen::KernelInputs inputs;
};
// `table`: what is copied, if its elements have 16 bits and scores are modified.
GradientExpressions gradient_expressions_of(const gradient::Derivatives& derivatives, bool masks,
                                            const std::optional<Table>& table);

// A class `Expressions` (attn/backward.cuh). `intervals`, `band`: as below.
std::string gradient_expressions_text(const gradient::Derivatives& derivatives,
                                      const GradientExpressions& expressions, bool intervals,
                                      const std::optional<ClosedBand>& band);

// Whether masks are padding (masks/padding.h) of keys, or of keys or rows.
bool has_padded_keys(const ir::Attention& attention);
bool has_padding(const ir::Attention& attention);

// Whether tensors or params decide what masks show.
bool masks_read_inputs(const ir::Attention& attention);

// What masks are conjunctions of: terms that read tensors, and those that do not.
struct MaskTerms {
  std::vector<ir::ExprId> by_tensors, by_indices;

  // Whether a block may need one kind alone.
  bool differ() const { return !by_tensors.empty() && !by_indices.empty(); }
};
MaskTerms terms_of_masks(const ir::Attention& attention);

// A class `Expressions` (attn/forward.cuh), whose fields are the inputs. `intervals`: with what
// lists of blocks are made from (intervals.h). `band`: with that of the masks, if blocks are
// computed.
std::string expressions_text(const ir::Attention& attention, const Expressions& expressions,
                             bool intervals, const std::optional<ClosedBand>& band);

}  // namespace attn::engines::native
