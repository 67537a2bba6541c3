// Lowers IR expressions to pointwise nodes on scores, in forms that cuDNN's fused engines accept
// and compute correctly:
//
// - The first input of every node is virtual; others are refused. Where no input is virtual, the
//   first (a captured tensor or scalar) is added to an index minus itself.
// - The score side comes first in selects: a by-value first input crashes the process.
// - `and` and `or` compute in FLOAT with BOOLEAN results: BOOLEAN and INT32 are refused.
// - `not` inverts the comparison or compares with 0. LOGICAL_NOT is silently ignored.
// - CMP_LT does not compare an index of rows as it is, which the padding mask does: beside a
//   comparison of columns, cuDNN takes it for that mask, and hides nothing, or crashes if there are
//   lengths. It becomes CMP_LE of the constant before, or compares the index + 0.
// - Integers of rows and columns are compared with each other by CMP_LE alone, and reals by it and
//   CMP_LT: cuDNN takes CMP_GT and CMP_GE of indices for those of its causal mask or of a window,
//   whichever comes first.
// - Indices are GEN_INDEX, except with a single row, where they are read from memory: that engine
//   splits the keys and restarts the column numbers in each split.
// - In the backward, the operand that depends on the score is the first input of sums, products and
//   comparisons. As the second, beside a value made from a tensor, it silently corrupts dq and dk.
// - // and % on integers require operands known to be non-negative: there truncation and floor
//   agree.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "compiler/engines/cudnn/whole_quotient.h"
#include "compiler/engines/shared/graph_builder.h"
#include "compiler/ir/attention.h"
#include "runtime/base/status.h"

namespace attn::engines {

class ExpressionLowering {
 public:
  // `score` is the value of ir::Op::score_. Every dimension must be bound.
  ExpressionLowering(const ir::Attention& attention, GraphBuilder& builder, Value score)
      : attention_(attention), builder_(builder), score_(score) {}

  // Errors: unsupported, with the position of the unsupported sub-expression.
  Result<Value> lower(ir::ExprId id);
  // The same as a factor of an f32: virtual values are converted to f32.
  Result<Value> lower_factor(ir::ExprId id);
  // The same as a virtual tensor with one value per score: f32 (reals) or boolean (masks).
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
  Value composed(ir::Op op, Value x, SourcePos pos);
  Value near_zero(Value x, Value series, Value direct, SourcePos pos);
  Value log1p_series(Value x, SourcePos pos);
  Value expm1_series(Value x, SourcePos pos);
  Value polynomial(Value x, std::span<const double> coefficients, SourcePos pos);
  Result<Value> floor_of(const WholeQuotient& quotient, SourcePos pos);
  Result<Value> comparison(ir::ExprId id, bool negated);
  bool like_padding(ir::ExprId id) const;
  Value row_up_to(Value row, std::int64_t last, SourcePos pos);
  Value plus(Value x, double amount, SourcePos pos);
  // A value, and what it is at most.
  struct UpTo {
    Value value;
    std::int64_t high;
  };
  Value integers_compared(graph::PointwiseMode mode, UpTo x, Value y, SourcePos pos);
  Result<Value> logic(ir::ExprId id);
  Result<Value> negation(ir::ExprId id);
  Result<Value> selection(ir::ExprId id);
  Result<Value> selection_of_booleans(ir::ExprId id);
  Result<Value> conversion(ir::ExprId id);

  bool depends_on_score(ir::ExprId id) const;
  // Whether the second operand must come first.
  bool score_comes_second(const ir::Node& node) const;
  Value binary(PointwiseMode mode, DType type, Value x, Value y, SourcePos pos);
  Value difference(DType type, Value x, Value y, SourcePos pos);
  Value element(Value value, SourcePos pos);
  Value real(Value value, SourcePos pos);
  Value zero_index(SourcePos pos);
  Value boolean_as_real(Value condition, SourcePos pos);
  Value is_false(Value condition, SourcePos pos);

  const ir::Attention& attention_;
  GraphBuilder& builder_;
  Value score_;
  std::optional<Value> zero_index_;
  std::map<ir::ExprId, Value> done_;
};

}  // namespace attn::engines
