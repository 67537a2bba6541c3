// Masks as lists of pages: the blocks of columns that each tile of rows sees. For masks that are
// block-sparse but not bands, known at compile time or not.
//
//   blocks[h, q_idx // 64, kv_idx // 64]   tiles of 64 rows, pages of 64 columns; no mask is left
//                                          to be evaluated per score
//   abs(q_idx - kv_idx) % 64 <= 6 && ..    tiles and pages of 128; the mask is evaluated for the
//                                          scores of the listed pages
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/masks/axes.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/target/context.h"

namespace attn::engines {

// The assumed fraction of visible blocks where it depends on inputs: on a table of blocks, on
// elements of a tensor that are equal at row and column, or on booleans of rows or columns (there,
// of the blocks that are not visible otherwise).
inline constexpr double kAssumedShare = 0.25;

inline constexpr std::int64_t kSmallestBlock = 64;  // rows, and columns

// Which blocks of columns each tile of rows sees, of all batches and heads.
struct BlockLists {
  std::int64_t tile = 0;             // rows of a tile
  std::int64_t tiles = 0;            // Sq / tile
  std::int64_t page = 0;             // columns of a page
  std::int64_t pages = 0;            // Skv / page
  std::int64_t longest = 0;          // most pages that a tile may see
  double listed = 0;                 // predicted pages of all tiles of a batch and head
  bool assumed = false;              // `listed` depends on kAssumedShare
  masks::Axes axes;                  // batch and head, if lists depend on them
  bool once = false;                 // lists do not depend on tensors or params
  bool same_rows = false;            // masks are the same for all rows of a tile
  bool same_columns = false;         // masks are the same for all columns of a page
  std::vector<ir::ExprId> residual;  // masks that vary within a block
};

// The lists of tiles and pages of 64 and 128 that are predicted to be fastest, kept with the
// analysis. There are none without a mask, if every tile is known to see some of every page, if
// there would be only one page, or if Sq or Skv is not a multiple of kSmallestBlock. Dimensions
// must be bound.
const std::optional<BlockLists>& block_lists(const masks::MaskAnalysis& mask);

// Predicted milliseconds of the kernel that follows the lists. `tiles` is the attention of the
// tiles (engines/cudnn/lower_block_sparse.h) in the form that the kernel computes: score and masks
// that it reads as tensors are tensors.
double predicted_ms(const BlockLists& lists, const ir::Attention& tiles,
                    const target::Context& context);

// Predicted milliseconds of the kernels that build the lists at every execute. `dims` are those of
// the whole attention.
double predicted_ms_of_making(const BlockLists& lists, const ir::Dims& dims,
                              const target::Gpu& gpu);

// "tiles of 128 rows see up to 5 of 32 pages of 128 columns, 12 % of all", for display.
std::string to_text(const BlockLists& lists);

}  // namespace attn::engines
