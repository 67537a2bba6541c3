#include "compiler/passes/analysis/like_padding.h"

#include <algorithm>
#include <vector>

#include "compiler/passes/analysis/axes.h"

namespace attn::passes {
namespace {

using ir::ExprId;
using ir::Op;

class LikePaddingSearch {
 public:
  explicit LikePaddingSearch(const ir::Attention& attention)
      : attention_(attention), dependence_(attention.dag) {}

  std::set<ExprId> run() {
    find(attention_.masks);
    find({attention_.score});
    if (!is_padded() && (rows_.empty() || columns_.empty())) return {};
    rows_.merge(columns_);
    return std::move(rows_);
  }

 private:
  void find(const std::vector<ExprId>& roots) {
    for (const ExprId id : ir::reachable(attention_.dag, roots)) {
      const ir::Node& node = attention_.dag[id];
      if (ir::info(node.op).rule != ir::Rule::comparison) continue;
      for (const std::size_t i : {0U, 1U}) {
        if (!is_of_neither(node.operands[1 - i])) continue;
        const ir::Node& index = unconverted(node.operands[i]);
        if (index.is(Op::row_)) rows_.insert(id);
        if (index.is(Op::column_)) columns_.insert(id);
      }
    }
  }

  // Whether the kernel compares row and column with lengths itself.
  bool is_padded() const {
    if (attention_.lengths_q || attention_.lengths_kv) return true;
    return std::ranges::any_of(attention_.layouts, [](const auto& layout) {
      const ir::LayoutKind kind = layout.second.kind;
      return kind == ir::LayoutKind::thd || kind == ir::LayoutKind::paged;
    });
  }

  // GEN_INDEX produces an index as a real if it is compared with a real.
  const ir::Node& unconverted(ExprId id) const {
    const ir::Node& node = attention_.dag[id];
    return node.is(Op::to_real_) ? attention_.dag[node.operands[0]] : node;
  }

  // Depends on neither row nor column, and is not a constant.
  bool is_of_neither(ExprId id) {
    const Axes axes = dependence_[id];
    return !axes.row && !axes.column && !attention_.dag.is_constant(id);
  }

  const ir::Attention& attention_;
  Dependence dependence_;
  std::set<ExprId> rows_, columns_;
};

}  // namespace

std::set<ir::ExprId> like_padding(const ir::Attention& attention) {
  return LikePaddingSearch(attention).run();
}

}  // namespace attn::passes
