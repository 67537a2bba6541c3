#include "compiler/engines/cudnn/score.h"

#include <limits>

namespace attn::engines {

Result<Value> times_scale(const ir::Attention& attention, GraphBuilder& builder, Value x) {
  ExpressionLowering expressions(attention, builder, x);
  ATTN_ASSIGN(const Value factor, expressions.lower(attention.scale));
  return builder.element(PointwiseMode::mul, DType::f32, DType::f32, x, factor,
                         attention.dag[attention.scale].pos);
}

Result<Value> mask_residual(const ir::Attention& attention, GraphBuilder& builder,
                            const masks::MaskForm& form, ExpressionLowering& expressions, Value x) {
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
                           const masks::MaskForm& form, Value scaled) {
  ExpressionLowering expressions(attention, builder, scaled);
  ATTN_ASSIGN(const Value score, expressions.lower_real_element(attention.score));
  return mask_residual(attention, builder, form, expressions, score);
}

}  // namespace attn::engines
