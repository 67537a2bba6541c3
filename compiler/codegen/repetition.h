// Terms of one shape in a sum, a conjunction or the like, which generated text computes in a loop:
// what `sum(j in 0..64: ..)` became, or was written out.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "compiler/ir/dag.h"

namespace attn::codegen {

// Fewer terms of a shape, or of so few operations together, are written one after the other: a
// loop takes some operations, too, and what the turns differ in is read from memory.
inline constexpr std::size_t kFewestTurns = 8;
inline constexpr std::size_t kFewestOperations = 64;

// Expressions of one shape: one for each turn of the loops around them, of which the innermost
// varies fastest. Outside of loops it is a single one.
using Family = std::vector<ir::ExprId>;

// The operands of a family's members at this place.
Family operands_of(const ir::Dag& dag, const Family& family, std::size_t operand);

// What a family with an associative operation is of, in the order of the terms.
struct Repetition {
  struct Terms {
    std::size_t turns = 0;
    Family members;  // of the family's loops and one more, which has so many turns
  };
  std::vector<Terms> loops;    // with at least kFewestTurns
  std::vector<Family> others;  // the terms of other shapes
};

// Two expressions have one shape if they differ in constants alone: numbers that are finite.
class Repetitions {
 public:
  // `is_given`: whether an expression has a text of its own, so that it has no other's shape.
  Repetitions(const ir::Dag& dag, std::function<bool(ir::ExprId)> is_given)
      : dag_(dag), is_given_(std::move(is_given)) {}

  // Null: its terms are few, or differ. The members have one shape.
  const Repetition* of(const Family& family);

  // A number for each shape.
  std::size_t shape_of(ir::ExprId id);

 private:
  using Shape = std::tuple<ir::Op, ir::Type, std::string, std::vector<std::size_t>>;

  std::optional<Repetition> found(const Family& family);
  std::vector<Family> terms_of(const Family& family, std::vector<Family>& inner) const;
  bool are_many(const std::vector<const Family*>& terms) const;
  std::string own_shape(ir::ExprId id) const;

  const ir::Dag& dag_;
  std::function<bool(ir::ExprId)> is_given_;
  std::map<ir::ExprId, std::size_t> shapes_;
  std::map<Shape, std::size_t> numbers_;
  std::map<Family, std::optional<Repetition>> known_;
};

}  // namespace attn::codegen
