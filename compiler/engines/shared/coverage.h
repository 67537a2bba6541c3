// Which scores an attention kernel of a program computes, and of which it skips whole blocks: for
// people to look at (compiler/pictures). Captured tensors, params and lengths may decide it, so
// that the blocks are known of given values only.
#pragma once

#include <optional>
#include <string>

#include "compiler/engines/shared/key_runs.h"
#include "compiler/engines/shared/view.h"
#include "compiler/ir/attention.h"
#include "compiler/masks/band.h"

namespace attn::engines {

// A kernel of cuDNN's skips the blocks outside of bands, and behind the lengths of a batch.
struct Bands {
  masks::Band band, from_end;  // MaskForm
  // Lengths that are not the attention's own: integers of the batch, in its dag.
  std::optional<ir::ExprId> rows{}, columns{};
};

struct Coverage {
  std::string what;         // one line, to be printed
  View view;                // of the whole attention's scores
  ir::Attention attention;  // of a class of the view
  // Absent: the kernel skips the blocks that masks and lengths hide.
  std::optional<Bands> bands{};
  // Blocks of rows x columns; of a row of them, each begins at a multiple of `cell` columns.
  std::int64_t rows = 0, columns = 0, cell = 0;
  // What each tile of rows computes, if it is known without values: else follows from masks.
  std::optional<KeyBlocks> lists{};
  std::optional<Patch> patch{};  // of rows; blocks of columns are patches too (native/patches.h)
  // Whether masks are evaluated in every block, and not only where they hide some scores.
  bool masks_all = false;
  // If not empty, the view is each segment of a batch by itself, of this tensor: [B, S] if
  // `by_batch`, else [S].
  std::string segments{};
  bool by_batch = false;
};

// Coverage of cuDNN's kernel that computes `attention`, whose masks have this form. cuDNN chooses
// the size of blocks; this is the one that predictions assume (engines/shared/cost.h).
Coverage coverage_of_fused(const ir::Attention& attention, const masks::MaskForm& form);

// Coverage of kernels that compute all scores.
Coverage coverage_of_all(const ir::Attention& attention);

}  // namespace attn::engines
