// Dropout: which of the softmax's weights are kept.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/lowering/cudnn/graph_builder.h"
#include "runtime/base/status.h"

namespace attn::lowering {

// Device tensors i64 [1] that the random numbers of dropout are made from.
inline constexpr const char* kSeed = "seed";
inline constexpr const char* kOffset = "offset";

// One of them.
Uid add_random_control(GraphBuilder& builder, const char* name);

// What the dropout clause, which there must be, keeps of one attention: decided once, used for the
// weights and, in the backward, for their gradient.
class Dropout {
 public:
  // `like` has the shape of the scores. Errors: those of ExpressionLowering.
  static Result<Dropout> make(const ir::Attention& attention, GraphBuilder& builder, Value like);

  Value kept(Value x) const;  // x or 0
  // x / (1 - probability), as a virtual tensor of that type.
  Value rescaled(Value x, DType dtype) const;

 private:
  Dropout(const ir::Dropout& clause, GraphBuilder& builder, Value decided)
      : clause_(clause), builder_(builder), decided_(decided) {}

  const ir::Dropout& clause_;
  GraphBuilder& builder_;
  Value decided_;  // f32, 1 or 0; or boolean
};

}  // namespace attn::lowering
