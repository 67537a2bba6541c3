// Text for kernels that compute which blocks their tiles see (attn/bands.cuh): masks that are one
// band, for each row of scores, whose ends follow in closed form from the row, lengths, params and
// tensors that are read by batch and head alone.
//
// A term that reads a tensor and is no band, such as the bits of a tree of drafts, is in doubt: it
// may show anything. Beside terms that decide most of the scores (`kv_idx < context || ..`) masks
// are still a band, whose ends are somewhere in between: blocks that are in doubt evaluate masks,
// others read no tensor.
#pragma once

#include <optional>
#include <string>

#include "compiler/ir/attention.h"
#include "compiler/target/deadline.h"

namespace attn::engines::native {

struct ClosedBand {
  // A member of a class of expressions:
  //   Band columns(int b, int h, Interval rows)    what these rows see; or
  //   Band rows(int b, int h, Interval columns)    what sees these columns
  std::string text;
  bool begins = false;                            // some rows do not see the first columns
  bool begin_varies = false, end_varies = false;  // with the row
  bool in_doubt = false;                          // some scores are, whatever the row
};

// The band of columns that each row sees (`index` is Op::column_), or of rows that see each column
// (Op::row_). Nothing if masks are no such band, or ends do not rise or fall with the row: then
// those of a tile's first and last row do not tell. Nor if more than half of the columns that
// a row may see at full length are in doubt: lists leave out what is hidden. Dimensions must be
// bound; the deadline may be null.
std::optional<ClosedBand> closed_band(const ir::Attention& attention, ir::Op index,
                                      const target::Deadline* deadline = nullptr);

}  // namespace attn::engines::native
