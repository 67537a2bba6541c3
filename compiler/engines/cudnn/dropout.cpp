#include "compiler/engines/cudnn/dropout.h"

#include "compiler/engines/cudnn/expression.h"
#include "compiler/engines/shared/controls.h"

namespace attn::engines {

Uid add_random_control(GraphBuilder& builder, const char* name) {
  return builder.add_tensor(name, DType::i64, {1, 1, 1, 1}, {1, 1, 1, 1}, {.alignment = 8});
}

Result<Dropout> Dropout::make(const ir::Attention& attention, GraphBuilder& builder, Value like) {
  const ir::Dropout& clause = *attention.dropout;
  if (clause.keep) {
    ExpressionLowering expressions(attention, builder, like);
    ATTN_ASSIGN(const Value condition, expressions.lower(*clause.keep));
    return Dropout(clause, builder, condition);
  }
  const Uid seed = add_random_control(builder, kSeed);
  const Uid offset = add_random_control(builder, kOffset);
  return Dropout(clause, builder, builder.rng(1 - clause.probability, seed, offset, clause.pos));
}

Value Dropout::kept(Value x) const {
  if (clause_.keep) {
    return builder_.select(decided_, x, builder_.constant(DType::f32, 0), clause_.pos);
  }
  return builder_.element(PointwiseMode::mul, DType::f32, DType::f32, x, decided_, clause_.pos);
}

Value Dropout::rescaled(Value x, DType dtype) const {
  const Value factor = builder_.constant(DType::f32, 1 / (1 - clause_.probability));
  const Uid y = builder_.add_scores(dtype);
  builder_.pointwise(PointwiseMode::mul, DType::f32, x.uid, factor.uid, y, clause_.pos);
  return {y, dtype, Place::element};
}

}  // namespace attn::engines
