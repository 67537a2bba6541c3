// Rebuilds the expressions of an attention, operands before their users.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/rewrite/simplify_rules.h"

namespace attn::rewrite {

// `make(builder, dag, id, operands)` returns the new expression of node `id` of `from`, whose
// rebuilt operands are `operands`, or nullopt to rebuild it as it is, in simplified form.
template <typename Make>
ir::Attention rebuilt(const ir::Attention& from, Make&& make) {
  ir::Attention to = from;
  to.dag = {};
  SimplifyingBuilder builder(to.dag);
  std::vector<ir::ExprId> ids(from.dag.size());
  for (const ir::ExprId id : ir::reachable(from.dag, from.roots())) {
    const ir::Node& node = from.dag[id];
    std::vector<ir::ExprId> operands;
    for (const ir::ExprId operand : node.operands) operands.push_back(ids[operand]);
    if (const std::optional<ir::ExprId> made = make(builder, to.dag, id, std::as_const(operands))) {
      ids[id] = *made;
    } else if (ir::info(node.op).rule == ir::Rule::symbol_type) {
      ids[id] = to.dag.add_symbol(node.op, std::get<std::string>(node.attribute), node.type,
                                  operands, node.pos);
    } else if (operands.empty()) {
      ids[id] = to.dag.add(node.op, {}, node.attribute, node.pos);
    } else {
      ids[id] = builder.make(node.op, operands, node.pos);
    }
  }
  for (ir::ExprId* place : to.root_places()) *place = ids[*place];
  return to;
}

}  // namespace attn::rewrite
