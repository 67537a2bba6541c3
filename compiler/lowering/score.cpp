#include "compiler/lowering/score.h"

#include <algorithm>
#include <limits>

#include "compiler/lowering/unsupported.h"
#include "compiler/passes/axes.h"

namespace attn::lowering {
namespace {

using ir::Op;

bool is_of_batch(const ir::Attention& attention, ir::ExprId id) {
  if (!attention.dag[id].is(Op::load_)) return false;
  return passes::varying(passes::Dependence(attention.dag)[id], attention.dims) ==
         passes::Axes{.batch = true};
}

// Whether one of these is compared with an element that only the batch chooses.
bool is_compared(const ir::Attention& attention, const std::vector<ir::ExprId>& ids, Op index) {
  return std::ranges::any_of(ids, [&](ir::ExprId id) {
    const ir::Node& node = attention.dag[id];
    if (ir::info(node.op).rule != ir::Rule::comparison) return false;
    const ir::ExprId x = node.operands[0], y = node.operands[1];
    return (attention.dag[x].is(index) && is_of_batch(attention, y)) ||
           (attention.dag[y].is(index) && is_of_batch(attention, x));
  });
}

// cuDNN 9.19 takes a row and a column that both are compared with tensors of the batch for lengths,
// and in silence hides nothing. In a backward such tensors are no operands of comparisons.
Status check_no_lengths(const ir::Attention& attention, const std::vector<ir::ExprId>& masks) {
  const std::vector<ir::ExprId> ids = ir::reachable(attention.dag, masks);
  if (!is_compared(attention, ids, Op::row_) || !is_compared(attention, ids, Op::column_))
    return {};
  return unsupported(attention.dag[masks.front()].pos,
                     "row and column are both compared with tensors of the batch, of which cuDNN's "
                     "kernel computes a wrong mask",
                     "as lengths or tables they are right");
}

}  // namespace

Result<Value> times_scale(const ir::Attention& attention, GraphBuilder& builder, Value x) {
  ExpressionLowering expressions(attention, builder, x);
  ATTN_ASSIGN(const Value factor, expressions.lower(attention.scale));
  return builder.element(PointwiseMode::mul, DType::f32, DType::f32, x, factor,
                         attention.dag[attention.scale].pos);
}

Result<Value> mask_residual(const ir::Attention& attention, GraphBuilder& builder,
                            const passes::MaskForm& form, ExpressionLowering& expressions,
                            Value x) {
  if (builder.pass() == Pass::forward) {
    ATTN_RETURN_IF_ERROR(check_no_lengths(attention, form.residual));
  }
  std::optional<Value> visible;
  SourcePos pos;
  for (const ir::ExprId mask : form.residual) {
    ATTN_ASSIGN(const Value conjunct, expressions.lower(mask));
    pos = attention.dag[mask].pos;
    visible = visible ? builder.element(PointwiseMode::logical_and, DType::f32, DType::boolean,
                                        *visible, conjunct, pos)
                      : conjunct;
  }
  if (!visible) return x;
  const Value hidden = builder.constant(DType::f32, -std::numeric_limits<double>::infinity());
  return builder.select(*visible, x, hidden, pos);
}

Result<Value> modify_score(const ir::Attention& attention, GraphBuilder& builder,
                           const passes::MaskForm& form, Value scaled) {
  ExpressionLowering expressions(attention, builder, scaled);
  ATTN_ASSIGN(const Value score, expressions.lower_real_element(attention.score));
  return mask_residual(attention, builder, form, expressions, score);
}

}  // namespace attn::lowering
