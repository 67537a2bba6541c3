// What a picture of a mask is made of: one cell for each score, or one for each block of scores.
#pragma once

#include <functional>

#include "compiler/masks/blocks.h"
#include "compiler/reference/bindings.h"
#include "runtime/ranks/intervals.h"

namespace attn::masks_of_values {

struct Place {
  std::int64_t batch = 0, head = 0;
  bool operator==(const Place&) const = default;
};

// How many scores are visible. Estimated from some of the partial blocks if `exact` is false.
struct Share {
  double visible = 0;
  double all = 0;
  bool exact = true;

  double part() const { return all == 0 ? 0 : visible / all; }
  bool operator==(const Share&) const = default;
};

struct Cells {
  masks::BlockMap map;  // of 1 x 1 if cells are scores: then none is partial
  Share share;

  bool are_scores() const { return map.rows == 1 && map.columns == 1; }
  bool operator==(const Cells&) const = default;
};

// All below: dimensions must be bound, and `values` must have the tensors and params that masks and
// lengths read, of the right dims.

// The attention with its lengths as masks, since lengths hide scores too.
ir::Attention with_lengths_as_masks(ir::Attention attention);

// Each score by itself, as the reference evaluates it. Errors: binding, of a visible score that
// depends on a missing value (reference::evaluate).
Result<Cells> scores_at(const ir::Attention& attention, const reference::Bindings& values,
                        const Place& place);

// Which blocks of rows x columns the masks show; lengths are not looked at. Cut short where each
// score of many must be looked at, the earlier, the more `places` are to be drawn. `known` is of
// values.
masks::BlockMap block_map_at(const ir::Attention& attention, const masks::KnownInputs& known,
                             const Place& place, std::int64_t rows, std::int64_t columns,
                             std::int64_t places = 1);

// Blocks of rows x columns by the mask analysis, which knows the values. Takes time in proportion
// to the blocks, and is cut short like block_map_at. Errors: those of scores_at, as far as they are
// found before it is cut short.
Result<Cells> blocks_at(const ir::Attention& attention, const reference::Bindings& values,
                        const Place& place, std::int64_t rows, std::int64_t columns,
                        std::int64_t places = 1);

// The visible scores of these rows and columns; those that have no value count half, and all do
// once that takes too long.
using CountVisible =
    std::function<double(const ranks::Interval& rows, const ranks::Interval& columns)>;
CountVisible count_visible_at(const ir::Attention& attention, const reference::Bindings& values,
                              const Place& place, std::int64_t places = 1);

// Change of the score where it is `before`, for each visible score, row by row; NaN where there is
// none. Errors: those of scores_at.
Result<std::vector<double>> changes_at(const ir::Attention& attention,
                                       const reference::Bindings& values, const Place& place,
                                       double before);

}  // namespace attn::masks_of_values
