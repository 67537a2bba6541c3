#include "compiler/rewrite/bounding_band.h"

#include "compiler/masks/mask_analysis.h"
#include "compiler/target/capabilities.h"

namespace attn::rewrite {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;

constexpr double kWorthwhile = 7.0 / 8;

bool is_tighter(const std::optional<std::int64_t>& bound, const std::optional<std::int64_t>& than) {
  return bound && (!than || *bound < *than);
}

// What the cover adds to the band.
masks::Band additions(const masks::Band& band, const masks::Band& cover,
                      const target::Context& context) {
  const bool backward =
      context.backward() && !can(target::Capability::backward_skips_right_of_diagonal, context);
  masks::Band added;
  if (!backward && is_tighter(cover.right, band.right)) added.right = cover.right;
  const bool causal = band.right && *band.right <= 0;
  const bool beside_right = band.right || added.right;
  if ((backward ? causal : beside_right) && is_tighter(cover.left, band.left)) {
    added.left = cover.left;
  }
  return added;
}

masks::Band both(masks::Band band, const masks::Band& added) {
  if (added.right) band.right = added.right;
  if (added.left) band.left = added.left;
  return band;
}

void add_bound(ir::Attention& attention, Op from, Op to, std::int64_t bound, ir::SourcePos pos) {
  ir::Dag& dag = attention.dag;
  const ExprId distance = dag.add(Op::sub_, {dag.leaf(to, pos), dag.leaf(from, pos)}, pos);
  attention.masks.push_back(dag.add(Op::le_, {distance, dag.integer(bound, pos)}, pos));
}

}  // namespace

ir::Attention with_bounding_band(const ir::Attention& attention, const target::Context& context,
                                 masks::Effort& effort) {
  if (!attention.dims.bound()) return attention;
  const masks::Analyzed mask = masks::analyzed(attention, context);
  if (mask->form().residual.empty()) return attention;
  const masks::Band band = mask->band();
  const masks::Band added = additions(band, mask->cover(effort), context);
  if (masks::band_share(attention.dims, both(band, added)) >
      kWorthwhile * masks::band_share(attention.dims, band)) {
    return attention;
  }
  ir::Attention covered = attention;
  const ir::SourcePos pos = attention.dag[mask->form().residual.front()].pos;
  if (added.right) add_bound(covered, Op::row_, Op::column_, *added.right, pos);
  if (added.left) add_bound(covered, Op::column_, Op::row_, *added.left, pos);
  return covered;
}

}  // namespace attn::rewrite
