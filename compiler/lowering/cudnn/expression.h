// Expressions of the IR as pointwise nodes in the score position, in the forms that cuDNN's fused
// engines accept and compute rightly. What is emitted:
//
// - the first input of every node is virtual (a captured tensor or scalar is first added to an
//   index less itself where nothing virtual can be first), since others are refused;
// - the score side stays first in selects: a by-value first input kills the process;
// - `and`, `or` compute in FLOAT with BOOLEAN results: in BOOLEAN or INT32 they are refused;
// - `not` swaps the comparison, never LOGICAL_NOT, which is ignored in silence;
// - indices are GEN_INDEX, but where there is a single row they are read from memory: the engine
//   for a single row splits the keys and numbers the columns of each split anew;
// - in the backward what depends on the score is the first input of sums, products and comparisons:
//   as the second beside a value made of a tensor it spoils dq and dk in silence;
// - // and % on integers only where both sides are known not to be negative, where truncation and
//   floor agree.
#pragma once

#include <map>
#include <optional>

#include "compiler/ir/attention.h"
#include "compiler/lowering/cudnn/graph_builder.h"
#include "compiler/lowering/cudnn/whole_quotient.h"
#include "runtime/base/status.h"

namespace attn::lowering {

class ExpressionLowering {
 public:
  // `score` is what ir::Op::score_ stands for. Every dimension must be bound.
  ExpressionLowering(const ir::Attention& attention, GraphBuilder& builder, Value score)
      : attention_(attention), builder_(builder), score_(score) {}

  // Errors: unsupported, placed at the sub-expression that is not served.
  Result<Value> lower(ir::ExprId id);
  // The same as a factor of an f32: a virtual value is f32 too.
  Result<Value> lower_factor(ir::ExprId id);
  // The same as a virtual f32 (real expressions) or boolean (masks) with one value a score.
  Result<Value> lower_real_element(ir::ExprId id);

 private:
  Result<Value> lower_new(ir::ExprId id);
  Result<Value> leaf(ir::ExprId id);
  Result<Value> real_constant(ir::ExprId id);
  Value index(std::size_t axis, SourcePos pos);
  Result<Value> load(ir::ExprId id);
  Result<Value> arithmetic(ir::ExprId id);
  Result<Value> integer_quotient(ir::ExprId id);
  Result<Value> exact_quotient(const ir::Node& node, const Value& x);
  Result<Value> real_quotient(ir::ExprId id);
  Result<Value> real_function(ir::ExprId id);
  Result<Value> floor_of(const WholeQuotient& quotient, SourcePos pos);
  Result<Value> comparison(ir::ExprId id, bool negated);
  Result<Value> logic(ir::ExprId id);
  Result<Value> negation(ir::ExprId id);
  Result<Value> selection(ir::ExprId id);
  Result<Value> selection_of_booleans(ir::ExprId id);
  Result<Value> conversion(ir::ExprId id);

  bool depends_on_score(ir::ExprId id) const;
  // Whether the second operand is to come first.
  bool score_comes_second(const ir::Node& node) const;
  Value binary(PointwiseMode mode, DType type, Value x, Value y, SourcePos pos);
  Value difference(DType type, Value x, Value y, SourcePos pos);
  Value element(Value value, SourcePos pos);
  Value real(Value value, SourcePos pos);
  Value zero_index(SourcePos pos);
  Value boolean_as_real(Value condition, SourcePos pos);

  const ir::Attention& attention_;
  GraphBuilder& builder_;
  Value score_;
  std::optional<Value> zero_index_;
  std::map<ir::ExprId, Value> done_;
};

}  // namespace attn::lowering
