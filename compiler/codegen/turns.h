// Sums of many terms that differ in constants alone, as kernels take them that have many scores:
// each term for all scores before the next one. What terms share is computed once for a score, and
// what a term reads by itself once for a thread.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "compiler/codegen/repetition.h"
#include "compiler/ir/dag.h"

namespace attn::codegen {

// The largest reals that members of a family share and that depend on a row or a column. nullopt if
// members depend on these, or on the score, otherwise. The members have one shape.
std::optional<std::set<ir::ExprId>> features_of(const ir::Dag& dag, const Family& family);

// Those from which the others follow, without another look at rows and columns.
std::vector<ir::ExprId> independent(const ir::Dag& dag, const std::set<ir::ExprId>& features);

struct TurnedSum {
  Family terms;                      // of the turns
  std::vector<ir::ExprId> features;  // that all terms follow from
  ir::ExprId rest;                   // what else is added
};
// Nullopt if `root` is not such a sum. Adds the rest to the dag.
std::optional<TurnedSum> turned_sum(ir::Dag& dag, ir::ExprId root);

}  // namespace attn::codegen
