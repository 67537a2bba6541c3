// Masks as lists of pages: which blocks of columns each tile of rows sees, for masks that are
// sparse by blocks but not by bands, whether that is known before the call or not.
//
//   blocks[h, q_idx // 64, kv_idx // 64]   tiles of 64 rows, pages of 64 columns; nothing is left
//                                          to be computed for each score
//   abs(q_idx - kv_idx) % 64 <= 6 && ..    tiles and pages of 128; the mask is left for the scores
//                                          of the pages that are listed
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/axes.h"
#include "compiler/planning/context.h"

namespace attn::passes {

// Which part of the blocks is taken to be seen where only the call tells, by a table of blocks, by
// elements of a tensor that are equal at row and column, or, of those that are not seen anyway, by
// booleans of rows and columns.
inline constexpr double kAssumedShare = 0.25;

inline constexpr std::int64_t kSmallestBlock = 64;  // rows, and columns

struct BlockLists {
  std::int64_t tile = 0;     // rows; Sq is so many times
  std::int64_t tiles = 0;    // .. that
  std::int64_t page = 0;     // columns; Skv is so many times
  std::int64_t pages = 0;    // .. that
  std::int64_t longest = 0;  // pages that a tile may see
  double listed = 0;         // pages that the tiles of a batch and head see, together: a prediction
  bool assumed = false;      // with kAssumedShare in it
  Axes axes;                 // the batch and the head, where lists depend on them
  bool once = false;         // lists depend on no tensor and no param
  bool same_rows = false;    // the masks say the same of all rows of a tile
  bool same_columns = false;         // .. of all columns of a page
  std::vector<ir::ExprId> residual;  // the masks that do not say the same of a whole block
};

// Those that are predicted to take the least, of tiles and pages of 64 and 128. Nothing without a
// mask, where every tile is known to see some of every page, where a page would be all there is,
// and where Sq or Skv is no multiple of kSmallestBlock. Dimensions must be bound.
std::optional<BlockLists> block_lists(const ir::Attention& attention);

// Milliseconds of the kernel that goes through the lists: `tiles` is the attention of the tiles
// (lowering/pages.h) in the form that the kernel computes, the score and masks that it reads as
// tensors being tensors.
double predicted_ms(const BlockLists& lists, const ir::Attention& tiles,
                    const planning::Context& context);

// Of the kernels that make them at every execute, for the dimensions of the whole attention.
double predicted_ms_of_making(const BlockLists& lists, const ir::Dims& dims,
                              const planning::Gpu& gpu);

// "tiles of 128 rows see up to 5 of 32 pages of 128 columns, 12 % of all", for people.
std::string to_text(const BlockLists& lists);

}  // namespace attn::passes
