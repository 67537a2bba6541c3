#include "compiler/engines/cudnn/score.h"

#include <limits>

#include "compiler/engines/cudnn/captured_view.h"
#include "compiler/engines/shared/unsupported.h"

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

Result<std::optional<Uid>> sink_operand(const ir::Attention& attention, GraphBuilder& builder) {
  if (!attention.sink) return std::optional<Uid>();
  const ir::Node& node = attention.dag[*attention.sink];
  const bool by_head = node.is(ir::Op::load_) && node.operands.size() == 1 &&
                       attention.dag[node.operands[0]].is(ir::Op::head_);
  if (!by_head) {
    return unsupported(node.pos, "cuDNN requires the sink to be a tensor with one value per head",
                       "declare `tensor sinks: f32[Hq];` and write `sink sinks[h];`");
  }
  ATTN_ASSIGN(const CapturedView view, captured_view(attention, *attention.sink));
  const std::string& name = attention.dag.symbol_of(*attention.sink);
  return std::optional(builder.add_tensor(name, view.dtype, view.dims, view.strides));
}

}  // namespace attn::engines
