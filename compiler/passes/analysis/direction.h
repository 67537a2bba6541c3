// Whether expressions rise or fall from one column to the next.
#pragma once

#include <cstdint>
#include <map>

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/axes.h"
#include "compiler/passes/analysis/range.h"

namespace attn::passes {

enum class Direction : std::uint8_t {
  constant,  // does not depend on the column
  rising,    // never smaller in a later column; booleans stay true
  falling,   // never larger
  unknown
};

// Directions of integers and booleans, for every batch, head and row. A captured tensor rises along
// its last axis if the spec declares it `monotone`. Sound, not tight. The attention must outlive
// this; nodes may be added to its DAG.
class Directions {
 public:
  explicit Directions(const ir::Attention& attention)
      : attention_(attention), dependence_(attention.dag), ranges_(attention) {}

  Direction operator[](ir::ExprId id);
  bool is_free(ir::ExprId id) { return !dependence_[id].column; }  // of the column

 private:
  Direction of(ir::ExprId id);
  Direction of_sum(ir::ExprId id);
  Direction of_product(ir::ExprId id);
  Direction of_division(const ir::Node& node);
  Direction of_magnitude(const ir::Node& node);
  Direction of_choice(const ir::Node& node);
  Direction of_load(ir::ExprId id);
  bool may_wrap(ir::ExprId id);

  const ir::Attention& attention_;
  Dependence dependence_;
  WholeRanges ranges_;
  std::map<ir::ExprId, Direction> known_;
};

}  // namespace attn::passes
