#include "compiler/lowering/score.h"

#include <limits>

#include "compiler/lowering/expression.h"

namespace attn::lowering {

Result<Value> modify_score(const ir::Attention& attention, GraphBuilder& builder,
                           const passes::MaskForm& form, Value scaled) {
  ExpressionLowering expressions(attention, builder, scaled);
  ATTN_ASSIGN(const Value score, expressions.lower_real_element(attention.score));
  std::optional<Value> visible;
  SourcePos pos;
  for (const ir::ExprId mask : form.residual) {
    ATTN_ASSIGN(const Value conjunct, expressions.lower(mask));
    pos = attention.dag[mask].pos;
    visible = visible ? builder.element(PointwiseMode::logical_and, DType::f32, DType::boolean,
                                        *visible, conjunct, pos)
                      : conjunct;
  }
  if (!visible) return score;
  const Value hidden = builder.constant(DType::f32, -std::numeric_limits<double>::infinity());
  return builder.select(*visible, score, hidden, pos);
}

}  // namespace attn::lowering
