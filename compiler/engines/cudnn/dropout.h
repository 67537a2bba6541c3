// Dropout of the softmax weights.
#pragma once

#include "compiler/engines/shared/graph_builder.h"
#include "compiler/ir/attention.h"
#include "runtime/base/status.h"

namespace attn::engines {

// Adds kSeed or kOffset (engines/shared/controls.h) to the graph.
Uid add_random_control(GraphBuilder& builder, const char* name);

// Which weights the attention's dropout clause (required) keeps: decided once, applied to the
// weights and, in the backward, to their gradient.
class Dropout {
 public:
  // `like` has the shape of the scores. Errors: those of ExpressionLowering.
  static Result<Dropout> make(const ir::Attention& attention, GraphBuilder& builder, Value like);

  Value kept(Value x) const;  // x or 0
  // x / (1 - probability), as a virtual tensor of type `dtype`.
  Value rescaled(Value x, DType dtype) const;

 private:
  Dropout(const ir::Dropout& clause, GraphBuilder& builder, Value decided)
      : clause_(clause), builder_(builder), decided_(decided) {}

  const ir::Dropout& clause_;
  GraphBuilder& builder_;
  Value decided_;  // f32, 1 or 0; or boolean
};

}  // namespace attn::engines
