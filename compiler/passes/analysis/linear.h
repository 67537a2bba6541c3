// Integer expressions as sums of multiples of other expressions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/range.h"
#include "compiler/passes/rewrite/simplify_rules.h"

namespace attn::passes {

// constant + the sum of factor * expression. No factor is 0.
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

// Reads and writes sums of one attention, whose DAG it adds to and which must outlive it. The
// attention must be simplified.
//
// A sum is one of true integers, without wrapping. An expression is the same modulo 2^32, so that
// the two are equal where the sum cannot leave 32 bits.
class LinearForms {
 public:
  explicit LinearForms(ir::Attention& attention)
      : attention_(attention), builder_(attention.dag), ranges_(attention) {}

  // Through + - * neg, // and % whose quotient is the same for every score, and constants. Anything
  // else is a term of its own, as are sums with factors beyond 32 bits.
  const Linear& of(ir::ExprId id);

  // What the sum can be, wider than 32 bits too; nothing when that is not known. Knows that a row
  // is smaller than Sq and a column than Skv, also where these are open, and what x - x // n * n
  // is.
  std::optional<Range> range_of(const Linear& sum);
  bool fits(const Linear& sum);  // within 32 bits, whatever the score
  Range range_of(ir::ExprId id) { return ranges_[id]; }

  // A sum that is equal to the expression: the expression itself where it may wrap.
  Linear value_of(ir::ExprId id);

  // The same with x for x // n * n + x % n.
  Linear rejoined(const Linear& sum);

  // An expression that is equal to the sum where the sum fits 32 bits.
  ir::ExprId expression(const Linear& sum);

  Linear size(ir::Dim dim);

  // floor(sum / divisor), divisor > 0; nothing when that needs an expression that may wrap.
  std::optional<Linear> quotient(const Linear& sum, std::int64_t divisor);

  SimplifyingBuilder& builder() { return builder_; }

 private:
  Linear made(ir::ExprId id);
  Linear product(ir::ExprId id);
  Linear division(ir::ExprId id);
  std::optional<Range> range_of_terms(const Linear& sum);
  std::optional<Range> range_of_remainder(const Linear& sum, ir::ExprId quotient);
  bool is_by_constant(ir::Op op, ir::ExprId id) const;
  ir::ExprId multiple(ir::ExprId id, std::int64_t factor);

  ir::Attention& attention_;
  SimplifyingBuilder builder_;
  std::map<ir::ExprId, Linear> forms_;
  WholeRanges ranges_;
};

}  // namespace attn::passes
