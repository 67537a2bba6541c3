#include "compiler/engines/shared/coverage.h"

#include "compiler/masks/blocks.h"

namespace attn::engines {

Coverage coverage_of_fused(const ir::Attention& attention, const masks::MaskForm& form) {
  return {.what = "one kernel of cuDNN's",
          .view = whole_view(attention),
          .attention = attention,
          .bands = Bands{form.band, form.from_end},
          .rows = masks::kBlock,
          .columns = masks::kBlock,
          .cell = masks::kBlock,
          .masks_all = !form.residual.empty()};
}

Coverage coverage_of_all(const ir::Attention& attention) {
  Coverage coverage = coverage_of_fused(attention, {});
  coverage.what = "kernels that keep the scores in memory";
  coverage.attention.lengths_q = coverage.attention.lengths_kv = false;
  coverage.masks_all = !attention.masks.empty() || attention.lengths_q || attention.lengths_kv;
  coverage.rows = attention.dims[ir::Dim::Sq];
  coverage.columns = coverage.cell = attention.dims[ir::Dim::Skv];
  return coverage;
}

}  // namespace attn::engines
