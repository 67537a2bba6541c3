// Integer expressions as sums of multiples of other expressions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/range.h"
#include "compiler/passes/rewrite/simplify_rules.h"

namespace attn::passes {

// constant + the sum of factor * expression; factors are not 0.
struct Linear {
  std::map<ir::ExprId, std::int64_t> terms;
  std::int64_t constant = 0;

  bool operator==(const Linear&) const = default;
};

Linear linear_constant(std::int64_t value);
Linear linear_term(ir::ExprId id, std::int64_t factor = 1);  // factor is not 0
Linear operator+(const Linear& x, const Linear& y);
Linear operator-(const Linear& x, const Linear& y);
Linear operator*(const Linear& x, std::int64_t factor);

// Converts expressions of one attention to sums and back. The attention must be simplified and
// outlive this; nodes are added to its DAG.
//
// Sums are exact, expressions wrap modulo 2^32: the two are equal if the sum cannot leave 32 bits.
class LinearForms {
 public:
  explicit LinearForms(ir::Attention& attention)
      : attention_(attention), builder_(attention.dag), ranges_(attention) {}

  // Sees through + - * neg, constants, and // and % whose quotient is the same for every score.
  // Anything else is a single term, and so is a sum with too large factors.
  const Linear& of(ir::ExprId id);

  // The range of the sum, which may exceed 32 bits; nullopt if unknown. Knows that row < Sq and
  // column < Skv even if these are open, and the range of x - x // n * n.
  std::optional<Range> range_of(const Linear& sum);
  bool fits(const Linear& sum);  // within 32 bits for every score
  Range range_of(ir::ExprId id) { return ranges_[id]; }

  // A sum that equals the expression: the expression itself if it may wrap.
  Linear value_of(ir::ExprId id);

  // The sum with x in place of x // n * n + x % n.
  Linear rejoined(const Linear& sum);

  // An expression that equals the sum if the sum fits 32 bits.
  ir::ExprId expression(const Linear& sum);

  Linear size(ir::Dim dim);

  // floor(sum / divisor), divisor > 0; nullopt if it needs an expression that may wrap.
  std::optional<Linear> quotient(const Linear& sum, std::int64_t divisor);

  SimplifyingBuilder& builder() { return builder_; }

 private:
  Linear made(ir::ExprId id);
  Linear product(ir::ExprId id);
  Linear division(ir::ExprId id);
  std::optional<Range> range_of_terms(const Linear& sum);
  std::optional<Range> range_of_remainder(const Linear& sum, ir::ExprId quotient);
  bool is_by_constant(ir::Op op, ir::ExprId id) const;
  ir::ExprId constant(std::int64_t value);
  ir::ExprId multiple(ir::ExprId id, std::int64_t factor);

  ir::Attention& attention_;
  SimplifyingBuilder builder_;
  std::map<ir::ExprId, Linear> forms_;
  WholeRanges ranges_;
};

}  // namespace attn::passes
