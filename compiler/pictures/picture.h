// A picture of the mask of an attention: cells of scores or blocks, for each batch and head that
// differs. Drawn by drawing.h and terminal.h.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/masks_of_values/cells.h"
#include "compiler/pictures/computed.h"

namespace attn::pictures {

struct Options {
  std::optional<std::int64_t> batch{}, head{};  // absent: all that differ
  // Rows and columns of a cell, at least 1; at most those of the scores are taken. Absent: 1, if
  // there are at most `scores` rows and columns, else square blocks of `smallest`, doubled until
  // there are at most `blocks` along an axis, or `blocks_of_several` where places may differ.
  std::optional<std::pair<std::int64_t, std::int64_t>> cell{};
  std::int64_t scores = 512;
  std::int64_t blocks = 1024;
  std::int64_t blocks_of_several = 256;
  std::int64_t smallest = masks::kBlock;
  // Blocks are halved along rows until each is of one owner, or there would be more than this.
  std::int64_t rows_of_owners = 0;
  std::optional<double> score{};  // the change of a score of this value, by colour
  // What these compute, by colour: of them there are 1 to kMostKernels.
  std::span<const engines::Coverage> kernels{};
  std::string lowering{};  // the strategy that has them
  // Instead of kernels: who computes what, by colour.
  std::span<const Owned> owned{};
  std::vector<std::string> owners{};  // in words, 1 to kMostKernels
  std::string division{};             // in words
};

// Cells are limited so that a picture can be held in memory.
inline constexpr std::int64_t kMostCells = std::int64_t{1} << 24;

// The help of errors about pictures that are too large.
inline constexpr const char* kDrawLess =
    "draw larger blocks with --blocks, or smaller dimensions with --bind";

struct Panel {
  std::vector<masks_of_values::Place> places;  // that look like this
  masks_of_values::Cells cells;
  std::vector<double> changes{};       // with Options::score: changes_at
  std::optional<Computed> computed{};  // with Options::kernels or owners
};

struct Picture {
  std::string name;
  std::string row_name;  // "q_idx", or "row" if rows are aligned otherwise
  std::int64_t rows = 0, columns = 0;
  bool by_batch = false, by_head = false;  // what panels differ by
  std::vector<Panel> panels;
  std::size_t left_out = 0;  // places without a panel
  std::optional<double> score{};
  double least = 0, most = 0;          // finite change of the score, of all panels
  bool has_nan = false;                // among the changes of visible scores
  std::string lowering{};              // with Options::kernels
  std::vector<std::string> kernels{};  // Coverage::what, or Options::owners
  std::string division{};              // with Options::owners
};

// Errors: invalid_argument (an index of a batch or head that does not exist, no scores, too many
// cells, blocks where changes of scores are wanted); those of scores_at. Dimensions must be bound.
Result<Picture> picture_of(const ir::Attention& attention, const reference::Bindings& values,
                           const Options& options);

// "head 0", "batches 0 to 3", "batch 1, head 2 and 5 others"; "" if all places look alike.
std::string title_of(const Picture& picture, const Panel& panel);
// "37.5 % of scores", "about 12.1 % of scores" if estimated.
std::string share_text(const masks_of_values::Share& share);
// "strategy native: tiles of 128 rows and blocks of 128 keys", "strategy parts: 2 parts", or the
// division.
std::string lowering_text(const Picture& picture);
// "38.3 % are computed"; "" unless a picture shows it.
std::string computed_text(const Picture& picture, const Panel& panel);
// "1,488 full and 96 partial of 4,096 blocks of 128 x 128"; "" if cells are scores.
std::string blocks_text(const masks_of_values::Cells& cells);
// 131072 -> "131,072"
std::string grouped(std::int64_t number);

}  // namespace attn::pictures
