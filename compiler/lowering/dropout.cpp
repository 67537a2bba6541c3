#include "compiler/lowering/dropout.h"

#include "compiler/lowering/expression.h"

namespace attn::lowering {
namespace {

Value kept_at_random(const ir::Dropout& dropout, GraphBuilder& builder, Value weights) {
  const Uid seed = add_random_control(builder, kSeed);
  const Uid offset = add_random_control(builder, kOffset);
  const Value kept = builder.rng(1 - dropout.probability, seed, offset, dropout.pos);
  return builder.element(PointwiseMode::mul, DType::f32, DType::f32, weights, kept, dropout.pos);
}

}  // namespace

Uid add_random_control(GraphBuilder& builder, const char* name) {
  return builder.add_tensor(name, DType::i64, {1, 1, 1, 1}, {1, 1, 1, 1}, {.alignment = 8});
}

Result<Value> dropout(const ir::Attention& attention, GraphBuilder& builder, Value weights) {
  if (!attention.dropout) return weights;
  const ir::Dropout& dropout = *attention.dropout;
  Value kept = weights;
  if (dropout.keep) {
    ExpressionLowering expressions(attention, builder, weights);
    ATTN_ASSIGN(const Value condition, expressions.lower(*dropout.keep));
    kept = builder.select(condition, weights, builder.constant(DType::f32, 0), dropout.pos);
  } else {
    kept = kept_at_random(dropout, builder, weights);
  }
  const Value factor = builder.constant(DType::f32, 1 / (1 - dropout.probability));
  const Uid scaled = builder.add_scores(attention.dtype);
  builder.pointwise(PointwiseMode::mul, DType::f32, kept.uid, factor.uid, scaled, dropout.pos);
  return Value{scaled, attention.dtype, Place::element};
}

}  // namespace attn::lowering
