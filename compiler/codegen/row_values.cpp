#include "compiler/codegen/row_values.h"

#include <algorithm>
#include <set>
#include <span>

#include "compiler/codegen/expression_writer.h"

namespace attn::codegen {

using ir::ExprId;
using ir::Op;

bool varies_along(const ir::Attention& view, ExprId id) {
  return std::ranges::any_of(ir::reachable(view.dag, std::span(&id, 1)), [&](ExprId each) {
    return view.dag[each].is(Op::column_) || view.dag[each].is(Op::score_);
  });
}

std::vector<ExprId> row_values(const ir::Attention& view, ExprId root) {
  constexpr std::size_t kMost = 4;
  std::vector<ExprId> found, open = {root};
  std::set<ExprId> seen;
  while (!open.empty()) {
    const ExprId id = open.back();
    open.pop_back();
    if (!seen.insert(id).second) continue;
    const ir::Node& node = view.dag[id];
    const bool reads =
        std::ranges::any_of(ir::reachable(view.dag, std::span(&id, 1)),
                            [&](ExprId each) { return view.dag[each].is(Op::load_); });
    if (!reads) continue;
    const bool serves = node.type == ir::Type::real && found.size() < kMost &&
                        !varies_along(view, id) && faults_of(view, {id}).empty();
    if (serves) {
      found.push_back(id);
    } else {
      open.insert(open.end(), node.operands.rbegin(), node.operands.rend());
    }
  }
  return found;
}

}  // namespace attn::codegen
