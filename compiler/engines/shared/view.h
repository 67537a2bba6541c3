// Some of an attention's scores, those of a regular lattice of rows and columns, as an attention of
// their own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::engines {

// The indices begin + shift * c + step * i, i < count, of class c.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
  std::int64_t shift = 0;

  std::int64_t index(std::int64_t c, std::int64_t i) const { return begin + shift * c + step * i; }
  bool operator==(const Stretch&) const = default;
};

// For each class c < classes, all pairs of its rows and columns.
struct View {
  Stretch rows, columns;
  std::int64_t classes = 1;

  bool operator==(const View&) const = default;
};

View whole_view(const ir::Attention& attention);

// What each class of the view computes: Sq and Skv are the counts, score and masks those of the
// rows and columns seen, simplified with what is known of their ranges. Nothing when classes
// differ: when an expression is not known to be the same for indices that are shifted. Dimensions
// must be bound, and there must be no lengths.
std::optional<ir::Attention> seen_through(const View& view, const ir::Attention& attention);

// The views that may write rows (or columns), 0 .. size - 1, where nobody else does, the largest
// first, and whether these write all that there are.
struct Writers {
  std::vector<bool> alone;  // by view
  bool whole = false;
};
Writers writers(const std::vector<View>& parts, Stretch View::*stretch, std::int64_t size);

// The change of an integer where rows and columns are larger by these; 0 for a boolean or real that
// stays the same. Nothing when that is not known to be one number for all scores.
std::optional<std::int64_t> change_of(const ir::Attention& attention, ir::ExprId id,
                                      std::int64_t rows, std::int64_t columns);

}  // namespace attn::engines
