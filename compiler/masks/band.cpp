#include "compiler/masks/band.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "compiler/masks/affine.h"
#include "compiler/masks/floor_div.h"
#include "compiler/masks/mask_analysis.h"

namespace attn::masks {
namespace {

using ir::ExprId;
using ir::Op;

struct Bands {
  Band from_start;
  Band from_end;
};

void tighten(std::optional<std::int64_t>& bound, ir::SourcePos& place, std::int64_t value,
             ir::SourcePos pos) {
  if (bound && *bound <= value) return;
  bound = value;
  place = pos;
}

Affine minus(const Affine& x, const Affine& y) {
  return {x.row - y.row, x.column - y.column, x.constant - y.constant, x.length_q - y.length_q,
          x.length_kv - y.length_kv};
}

// g * (KV - Q), or nullopt if it depends on an open dimension.
std::optional<Affine> diagonal(const ir::Attention& attention, std::int64_t g) {
  const auto rows = attention.dims.get(ir::Dim::Sq), columns = attention.dims.get(ir::Dim::Skv);
  Affine part;
  if (attention.lengths_kv) {
    part.length_kv = g;
  } else if (columns) {
    part.constant += g * *columns;
  } else {
    return std::nullopt;
  }
  if (attention.lengths_q) {
    part.length_q = -g;
  } else if (rows) {
    part.constant -= g * *rows;
  } else {
    return std::nullopt;
  }
  return part;
}

// Adds the bound `difference` >= 0. Returns false if it is not a bound of a band.
bool add_nonnegative(const ir::Attention& attention, Bands& bands, Affine difference,
                     ir::SourcePos pos) {
  const std::int64_t g = difference.row;
  if (g == 0 || difference.column != -g) return false;
  const bool by_lengths = difference.length_q != 0 || difference.length_kv != 0;
  if (by_lengths) {
    const auto part = diagonal(attention, g);
    if (!part) return false;
    difference = minus(difference, *part);
    if (difference.length_q != 0 || difference.length_kv != 0) return false;
  }
  Band& band = by_lengths ? bands.from_end : bands.from_start;
  if (g > 0) {  // g (row - column) + c >= 0  <=>  column - row <= floor(c / g)
    tighten(band.right, band.right_pos, floor_div(difference.constant, g), pos);
  } else {
    tighten(band.left, band.left_pos, floor_div(difference.constant, -g), pos);
  }
  return true;
}

// Adds `small` <= `large` + `slack`. Both must be affine, or `small` the abs of an affine
// expression.
bool add_at_most(const ir::Attention& attention, Bands& band, ExprId small, ExprId large,
                 std::int64_t slack, ir::SourcePos pos) {
  const auto limit = affine_of(attention, large);
  if (!limit) return false;
  Affine room = *limit;
  room.constant += slack;
  if (const ir::Node& node = attention.dag[small]; node.is(Op::abs_)) {
    const auto inner = affine_of(attention, node.operands[0]);
    if (!inner) return false;
    Bands both = band;
    const Affine negated = minus({}, *inner);
    if (!add_nonnegative(attention, both, minus(room, *inner), pos)) return false;
    if (!add_nonnegative(attention, both, minus(room, negated), pos)) return false;
    band = both;
    return true;
  }
  const auto value = affine_of(attention, small);
  return value && add_nonnegative(attention, band, minus(room, *value), pos);
}

bool add_equal(const ir::Attention& attention, Bands& band, ExprId x, ExprId y, ir::SourcePos pos) {
  Bands both = band;
  if (!add_at_most(attention, both, x, y, 0, pos) || !add_at_most(attention, both, y, x, 0, pos))
    return false;
  // g (row - column) = c has solutions only where g divides c; a band cannot express "nowhere".
  const Affine difference = minus(*affine_of(attention, x), *affine_of(attention, y));
  if (difference.constant % difference.row != 0) return false;
  band = both;
  return true;
}

bool add_conjunct(const ir::Attention& attention, Bands& band, ExprId id) {
  const ir::Dag& dag = attention.dag;
  const ir::Node& node = dag[id];
  if (node.operands.size() != 2 || dag[node.operands[0]].type != ir::Type::integer) return false;
  const ExprId x = node.operands[0], y = node.operands[1];
  switch (node.op) {
    case Op::le_: return add_at_most(attention, band, x, y, 0, node.pos);
    case Op::lt_: return add_at_most(attention, band, x, y, -1, node.pos);
    case Op::ge_: return add_at_most(attention, band, y, x, 0, node.pos);
    case Op::gt_: return add_at_most(attention, band, y, x, -1, node.pos);
    case Op::eq_:
      return !dag[x].is(Op::abs_) && !dag[y].is(Op::abs_) &&
             add_equal(attention, band, x, y, node.pos);
    default: return false;
  }
}

// Drops a bound that the extreme corner of the score matrix meets: it is met everywhere. Clamps one
// below the other corner, which hides everything.
void fit_to_sizes(const ir::Dims& dims, Band& band) {
  const auto rows = dims.get(ir::Dim::Sq), columns = dims.get(ir::Dim::Skv);
  if (columns && band.right && *band.right >= *columns - 1) band.right.reset();
  if (rows && band.left && *band.left >= *rows - 1) band.left.reset();
  if (rows && band.right) band.right = std::max(*band.right, -*rows);
  if (columns && band.left) band.left = std::max(*band.left, -*columns);
}

// Around the last diagonal rows and columns swap roles: the first column of the last row is Skv - 1
// away from it.
void fit_from_end(const ir::Dims& dims, Band& band) {
  ir::Dims turned;
  turned.set(ir::Dim::Sq, dims.get(ir::Dim::Skv));
  turned.set(ir::Dim::Skv, dims.get(ir::Dim::Sq));
  fit_to_sizes(turned, band);
}

}  // namespace

MaskForm MaskAnalysis::find_form() const {
  MaskForm form;
  Bands bands;
  for (const ExprId mask : attention_.masks) {
    if (!add_conjunct(attention_, bands, mask)) form.residual.push_back(mask);
  }
  form.band = bands.from_start;
  form.from_end = bands.from_end;
  fit_to_sizes(attention_.dims, form.band);
  fit_from_end(attention_.dims, form.from_end);
  return form;
}

Band full_band(const MaskForm& form, const ir::Dims& dims) {
  Band band = form.band;
  const std::int64_t diagonal = dims[ir::Dim::Skv] - dims[ir::Dim::Sq];
  const Band& end = form.from_end;
  if (end.right) tighten(band.right, band.right_pos, *end.right + diagonal, end.right_pos);
  if (end.left) tighten(band.left, band.left_pos, *end.left - diagonal, end.left_pos);
  return band;
}

double band_share(const ir::Dims& dims, const Band& band) {
  const std::int64_t rows = dims[ir::Dim::Sq], columns = dims[ir::Dim::Skv];
  const auto shown = [&](std::int64_t row) {
    const std::int64_t last = band.right ? std::min(columns - 1, row + *band.right) : columns - 1;
    const std::int64_t first = band.left ? std::max<std::int64_t>(0, row - *band.left) : 0;
    return static_cast<double>(std::max<std::int64_t>(0, last - first + 1));
  };
  // Between these rows the number of visible columns changes linearly.
  std::set<std::int64_t> ends = {0, rows};
  const auto add_end = [&](std::int64_t row) {
    ends.insert(std::clamp<std::int64_t>(row, 0, rows));
  };
  if (band.right) {
    add_end(-*band.right - 1);
    add_end(columns - 1 - *band.right);
  }
  if (band.left) {
    add_end(*band.left);
    add_end(columns + *band.left);
  }
  double visible = 0;
  for (auto begin = ends.begin(), end = std::next(begin); end != ends.end(); begin = end++) {
    visible += static_cast<double>(*end - *begin) * (shown(*begin) + shown(*end - 1)) / 2;
  }
  return visible / (static_cast<double>(rows) * static_cast<double>(columns));
}

namespace {

// `distance` is what is bounded.
std::string to_text(const Band& band, std::string_view distance) {
  if (band.left && band.right) {
    return fmt::format("{} <= {} <= {}", -*band.left, distance, *band.right);
  }
  if (band.right) return fmt::format("{} <= {}", distance, *band.right);
  if (band.left) return fmt::format("{} <= {}", -*band.left, distance);
  return "no band";
}

}  // namespace

std::string band_text(const MaskForm& form, const ir::Attention& attention) {
  const bool top_left = attention.align == ir::Align::top_left;
  return to_text(form.band, top_left ? "kv_idx - q_idx" : "kv_idx - q_raw");
}

std::string band_from_end_text(const MaskForm& form, const ir::Attention& attention) {
  const bool top_left = attention.align == ir::Align::top_left;
  return to_text(form.from_end, top_left ? "kv_idx - q_idx - (keys - rows)" : "kv_idx - q_idx");
}

}  // namespace attn::masks
