// Masks as a band around the diagonal and a rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::passes {

// Visible where  column - row <= right  and  row - column <= left; an absent bound is no bound.
// Causal is right = 0; a sliding window that shows w tokens is right = 0, left = w - 1.
struct Band {
  std::optional<std::int64_t> right;
  std::optional<std::int64_t> left;
  ir::SourcePos right_pos;  // the comparison that gave the tightest bound
  ir::SourcePos left_pos;

  bool operator==(const Band&) const = default;
};

struct MaskForm {
  Band band;
  // The same of the distance to the last diagonal: column - row - (KV - Q), where KV and Q are the
  // lengths of the batch, and Skv or Sq for one that the attention has no lengths of. Empty without
  // lengths.
  Band from_end{};
  std::vector<ir::ExprId> residual;  // the conjuncts that are not band bounds, in order

  bool operator==(const MaskForm&) const = default;
};

// The conjunction of the masks, exactly: bands and residual together show what the masks show.
//
// A conjunct becomes a bound when it compares integers whose difference is g * (row - column) + c
// or g * (row - column + KV - Q) + c (also through abs on one side), g != 0, and nothing in it can
// leave 32 bits (affine.h). With bound dimensions a bound that every pair of rows and columns meets
// is dropped, and one that none meets is moved next to the last that one could meet. Conjuncts must
// have been split (passes::simplify).
MaskForm mask_form(const ir::Attention& attention);

// What both bands show in a batch of full lengths, as one from the first diagonal. Sq and Skv must
// be bound.
Band full_band(const MaskForm& form, const ir::Dims& dims);

// Which part of all scores the band shows. Sq and Skv must be bound.
double band_share(const ir::Dims& dims, const Band& band);

// "-4095 <= kv - row <= 0"-like words for people; rows are row numbers. `distance` is what is
// bounded.
std::string to_text(const Band& band, std::string_view distance = "kv - row");
inline constexpr std::string_view kDistanceFromEnd = "kv - row - (KV - Q)";

}  // namespace attn::passes
