#include "compiler/passes/rewrite/bounding_band.h"

#include "compiler/passes/analysis/mask_analysis.h"
#include "compiler/planning/capabilities.h"

namespace attn::passes {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;

constexpr double kWorthwhile = 7.0 / 8;

bool is_tighter(const std::optional<std::int64_t>& bound, const std::optional<std::int64_t>& than) {
  return bound && (!than || *bound < *than);
}

// What the cover adds to the band.
Band additions(const Band& band, const Band& cover, const planning::Context& context) {
  const bool backward =
      context.backward() && !can(planning::Capability::backward_skips_right_of_diagonal, context);
  Band added;
  if (!backward && is_tighter(cover.right, band.right)) added.right = cover.right;
  const bool causal = band.right && *band.right <= 0;
  const bool beside_right = band.right || added.right;
  if ((backward ? causal : beside_right) && is_tighter(cover.left, band.left)) {
    added.left = cover.left;
  }
  return added;
}

Band both(Band band, const Band& added) {
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

ir::Attention with_bounding_band(const ir::Attention& attention, const planning::Context& context,
                                 Effort& effort) {
  if (!attention.dims.bound()) return attention;
  const Analyzed mask = analyzed(attention, context);
  if (mask->form().residual.empty()) return attention;
  const Band band = mask->band();
  const Band added = additions(band, mask->cover(effort), context);
  if (band_share(attention.dims, both(band, added)) >
      kWorthwhile * band_share(attention.dims, band)) {
    return attention;
  }
  ir::Attention covered = attention;
  const ir::SourcePos pos = attention.dag[mask->form().residual.front()].pos;
  if (added.right) add_bound(covered, Op::row_, Op::column_, *added.right, pos);
  if (added.left) add_bound(covered, Op::column_, Op::row_, *added.left, pos);
  return covered;
}

}  // namespace attn::passes
