#include <limits>

#include "compiler/engines/cudnn/dropout.h"
#include "compiler/engines/cudnn/expression.h"
#include "compiler/engines/cudnn/lower.h"
#include "compiler/engines/cudnn/score.h"
#include "compiler/engines/cudnn/statistics.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/graph_builder.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"

namespace attn::engines {
namespace {

using graph::BandSide;
using ir::Dim;
using ir::LayoutKind;

class Unified {
 public:
  Unified(const ir::Attention& attention, const masks::MaskForm& form)
      : attention_(attention),
        builder_(attention.dims[Dim::B], attention.dims[Dim::Hq], attention.dims[Dim::Sq],
                 attention.dims[Dim::Skv]),
        form_(form) {}

  Result<plan::CudnnStep> build() && {
    ATTN_RETURN_IF_ERROR(check());
    node_.pos = attention_.pos;
    lengths_ = add_lengths(attention_, builder_);
    node_.lengths_q = lengths_.q;
    node_.lengths_kv = lengths_.kv;
    node_.q = add_stored(attention_, builder_, "q");
    node_.k = add_stored(attention_, builder_, "k");
    if (is_paged("k")) node_.table_k = add_page_table(attention_, builder_, "k");
    ATTN_RETURN_IF_ERROR(set_score());
    ATTN_ASSIGN(node_.sink, sink_operand(attention_, builder_));
    set_dropout();
    node_.v = add_stored(attention_, builder_, "v");
    if (is_paged("v")) node_.table_v = add_page_table(attention_, builder_, "v");
    node_.o = add_stored(attention_, builder_, "o");
    if (attention_.wants_lse) node_.stats = stored_lse(attention_, builder_);
    builder_.sdpa_forward(node_);
    return std::move(builder_).finish();
  }

 private:
  Status check() const {
    if (attention_.wants_max_or_sum()) {
      return unsupported(attention_.statistics_pos,
                         "the unified node is not known to support max and sum_exp");
    }
    if (attention_.dropout && attention_.dropout->keep) {
      return unsupported(attention_.dropout->pos, "the unified node supports random dropout only");
    }
    return {};
  }

  bool is_paged(std::string_view name) const {
    return attention_.layouts.find(name)->second.kind == LayoutKind::paged;
  }

  // The node takes a scalar scale; any other becomes part of the score modification.
  Status set_score() {
    const ir::Node& scale = attention_.dag[attention_.scale];
    const bool by_node =
        ir::fold_real(attention_.dag, attention_.scale) || scale.is(ir::Op::param_);
    if (by_node) {
      ExpressionLowering expressions(attention_, builder_, {});
      ATTN_ASSIGN(const Value factor, expressions.lower(attention_.scale));
      node_.scale = factor.uid;
    }
    if (by_node && !changes_score()) return {};
    const Value lent{builder_.add_scores(DType::f32, "q.k"), DType::f32, Place::element};
    Value score = lent;
    if (!by_node) {
      ExpressionLowering expressions(attention_, builder_, lent);
      ATTN_ASSIGN(const Value factor, expressions.lower(attention_.scale));
      score = builder_.element(PointwiseMode::mul, DType::f32, DType::f32, lent, factor, scale.pos);
    }
    ATTN_ASSIGN(score, modify_score(attention_, builder_, form_, score));
    score = mask_band(form_.band, false, score);
    score = mask_band(form_.from_end, true, score);
    node_.score = lent.uid;
    node_.modified = score.uid;
    return {};
  }

  bool changes_score() const {
    const auto is_bound = [](const masks::Band& band) { return band.left || band.right; };
    return !attention_.dag[attention_.score].is(ir::Op::score_) || !form_.residual.empty() ||
           is_bound(form_.band) || is_bound(form_.from_end);
  }

  Value mask_band(const masks::Band& band, bool from_end, Value score) {
    if (band.right)
      score = mask_side(BandSide::right, *band.right, from_end, score, band.right_pos);
    if (band.left)
      score = mask_side(BandSide::left, *band.left + 1, from_end, score, band.left_pos);
    return score;
  }

  Value mask_side(BandSide side, std::int64_t bound, bool from_end, Value score, SourcePos pos) {
    graph::BandMask mask;
    mask.side = side;
    mask.x = score.uid;
    mask.pos = pos;
    const double hidden = -std::numeric_limits<double>::infinity();
    mask.fill = builder_.constant(DType::f32, hidden).uid;
    if (bound != 0 || side == BandSide::left) {
      mask.bound = builder_.constant(DType::i32, static_cast<double>(bound)).uid;
    }
    if (from_end) {
      mask.lengths_q = lengths_.q;
      mask.lengths_kv = lengths_.kv;
    }
    return builder_.band_mask(mask);
  }

  void set_dropout() {
    if (!attention_.dropout || attention_.dropout->probability == 0) return;
    node_.dropout = attention_.dropout->probability;
    node_.seed = add_random_control(builder_, kSeed);
    node_.offset = add_random_control(builder_, kOffset);
  }

  const ir::Attention& attention_;
  GraphBuilder builder_;
  const masks::MaskForm& form_;
  Lengths lengths_;
  graph::SdpaForward node_;
};

}  // namespace

Result<plan::CudnnStep> unified(const ir::Attention& attention, const masks::MaskForm& form) {
  return Unified(attention, form).build();
}

}  // namespace attn::engines
