// Text for kernels that compute which blocks their tiles see (attn/bands.cuh): masks that are one
// band, for each row of scores, whose ends follow in closed form from the row, lengths, params and
// tensors that are read by batch and head alone.
#pragma once

#include <optional>
#include <string>

#include "compiler/ir/attention.h"

namespace attn::engines::native {

struct ClosedBand {
  // A member of a class of expressions:
  //   Band columns(int b, int h, Interval rows)    what these rows see; or
  //   Band rows(int b, int h, Interval columns)    what sees these columns
  std::string text;
  bool begins = false;                            // some rows do not see the first columns
  bool begin_varies = false, end_varies = false;  // with the row
};

// The band of columns that each row sees (`index` is Op::column_), or of rows that see each column
// (Op::row_). Nothing if masks are no such band, or ends do not rise or fall with the row: then
// those of a tile's first and last row do not tell.
std::optional<ClosedBand> closed_band(const ir::Attention& attention, ir::Op index);

}  // namespace attn::engines::native
