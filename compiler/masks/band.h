// Splits masks into a band around the diagonal and a residual.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::masks {

// Visible where column - row <= right and row - column <= left; an absent bound does not restrict.
// Causal is right = 0; a sliding window that shows w tokens is right = 0, left = w - 1.
struct Band {
  std::optional<std::int64_t> right;
  std::optional<std::int64_t> left;
  ir::SourcePos right_pos;  // the comparison that gave the tightest bound
  ir::SourcePos left_pos;

  bool operator==(const Band&) const = default;
};

// The conjunction of the masks, split exactly (MaskAnalysis::form): bands and residual together
// show what the masks show.
//
// A conjunct becomes a bound when it compares integers whose difference is g * (row - column) + c
// or g * (row - column + KV - Q) + c (also through abs on one side), g != 0, and nothing in it can
// leave 32 bits (affine.h). If dimensions are bound, a bound that every score meets is dropped, and
// one that no score meets becomes the largest such bound. Conjuncts must have been split
// (rewrite::simplify).
struct MaskForm {
  Band band;
  // Bounds of the distance to the last diagonal: column - row - (KV - Q), where KV and Q are the
  // lengths of the batch, or Skv or Sq where lengths are absent. Empty without lengths.
  Band from_end{};
  std::vector<ir::ExprId> residual;  // the conjuncts that are not band bounds, in order

  bool operator==(const MaskForm&) const = default;
};

// Both bands as one around the first diagonal, for a batch of full lengths. Sq and Skv must be
// bound.
Band full_band(const MaskForm& form, const ir::Dims& dims);

// The fraction of all scores that the band shows. Sq and Skv must be bound.
double band_share(const ir::Dims& dims, const Band& band);

// "-4095 <= kv_idx - q_idx <= 0", in the language's own syntax where it has one: q_raw is the row
// where the attention is aligned bottom right. Of MaskForm::band, and of from_end.
std::string band_text(const MaskForm& form, const ir::Attention& attention);
std::string band_from_end_text(const MaskForm& form, const ir::Attention& attention);

}  // namespace attn::masks
