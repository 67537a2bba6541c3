#include "compiler/engines/shared/view.h"

#include <algorithm>
#include <vector>

#include "compiler/masks/range.h"
#include "compiler/rewrite/pass.h"
#include "compiler/rewrite/ranged.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/simplify.h"

namespace attn::engines {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;
using Change = std::optional<std::int64_t>;

class Changes {
 public:
  Changes(const ir::Attention& attention, ExprId root, std::int64_t rows, std::int64_t columns)
      : dag_(attention.dag),
        roots_{root},
        ranges_(attention, roots_),
        rows_(rows),
        columns_(columns),
        changes_(root + 1) {
    ranges_.look_at(masks::whole_box(attention));
  }

  Change run() {
    for (const ExprId id : ir::reachable(dag_, roots_)) changes_[id] = sound(id, change(dag_[id]));
    return changes_[roots_.front()];
  }

 private:
  // What may leave 32 bits wraps around, at other places when it is shifted.
  Change sound(ExprId id, Change change) const {
    const bool wraps = dag_[id].type == ir::Type::integer && ranges_[id] == masks::Range{};
    return change && *change != 0 && wraps ? Change() : change;
  }

  Change change(const Node& node) const {
    switch (node.op) {
      case Op::row_: return rows_;
      case Op::column_: return columns_;
      case Op::add_:
      case Op::sub_:
      case Op::neg_:
      case Op::mul_:
        return node.type == ir::Type::integer ? of_arithmetic(node) : of_constants(node);
      case Op::floordiv_: return of_quotient(node);
      case Op::mod_: return of_remainder(node);
      case Op::min_:
      case Op::max_:
      case Op::select_: return of_choice(node);
      case Op::eq_:
      case Op::ne_:
        if (is_congruence(node)) return 0;
        [[fallthrough]];
      case Op::lt_:
      case Op::le_:
      case Op::gt_:
      case Op::ge_: return of_comparison(node);
      default: return of_constants(node);
    }
  }

  Change operand(const Node& node, std::size_t i) const { return changes_[node.operands[i]]; }

  Change of_constants(const Node& node) const {
    const bool all =
        std::ranges::all_of(node.operands, [&](ExprId id) { return changes_[id] == 0; });
    return all ? Change(0) : Change();
  }

  Change of_arithmetic(const Node& node) const {
    const Change x = operand(node, 0);
    if (!x) return {};
    if (node.is(Op::neg_)) return -*x;
    const Change y = operand(node, 1);
    if (!y) return {};
    if (node.is(Op::add_)) return *x + *y;
    if (node.is(Op::sub_)) return *x - *y;
    if (*x == 0 && *y == 0) return 0;
    const std::optional<std::int64_t> a = constant(node.operands[0]),
                                      b = constant(node.operands[1]);
    if (b) return *x * *b;
    return a ? Change(*y * *a) : Change();
  }

  std::optional<std::int64_t> constant(ExprId id) const {
    return dag_[id].is(Op::const_int_) ? std::optional(dag_.integer_of(id)) : std::nullopt;
  }

  std::optional<std::int64_t> divisor(const Node& node) const {
    const std::optional<std::int64_t> value = constant(node.operands[1]);
    return node.type == ir::Type::integer && value && *value > 0 ? value : std::nullopt;
  }

  Change of_quotient(const Node& node) const {
    const Change x = operand(node, 0);
    const std::optional<std::int64_t> n = divisor(node);
    if (x && n && *x % *n == 0) return *x / *n;
    return of_constants(node);
  }

  Change of_remainder(const Node& node) const {
    const Change x = operand(node, 0);
    const std::optional<std::int64_t> n = divisor(node);
    return x && n && *x % *n == 0 ? Change(0) : of_constants(node);
  }

  // min, max and select of values that change alike.
  Change of_choice(const Node& node) const {
    const std::size_t first = node.is(Op::select_) ? 1 : 0;
    if (first == 1 && operand(node, 0) != 0) return {};
    const Change x = operand(node, first), y = operand(node, first + 1);
    return x == y ? x : Change();
  }

  Change of_comparison(const Node& node) const {
    const Change x = operand(node, 0), y = operand(node, 1);
    return x && x == y ? Change(0) : Change();
  }

  // x % n == y % n, where x and y change alike but for multiples of n.
  bool is_congruence(const Node& node) const {
    const Node &x = dag_[node.operands[0]], &y = dag_[node.operands[1]];
    if (!x.is(Op::mod_) || !y.is(Op::mod_)) return false;
    const std::optional<std::int64_t> n = divisor(x);
    if (!n || n != divisor(y)) return false;
    const Change a = operand(x, 0), b = operand(y, 0);
    return a && b && (*a - *b) % *n == 0;
  }

  const ir::Dag& dag_;
  std::vector<ExprId> roots_;
  masks::Ranges ranges_;
  std::int64_t rows_, columns_;
  std::vector<Change> changes_;  // by id
};

bool is_same_in_all_classes(const View& view, const ir::Attention& attention) {
  if (view.classes == 1) return true;
  const auto same = [&](ExprId id) {
    return change_of(attention, id, view.rows.shift, view.columns.shift) == 0;
  };
  const bool dropped =
      !attention.dropout || !attention.dropout->keep || same(*attention.dropout->keep);
  return dropped && same(attention.score) && std::ranges::all_of(attention.masks, same);
}

// begin + step * index
ExprId index_of(const Stretch& stretch, Op leaf, rewrite::SimplifyingBuilder& builder, ir::Dag& dag,
                ir::SourcePos pos) {
  const ExprId index = dag.leaf(leaf, pos);
  const ExprId scaled = builder.make(Op::mul_, {index, dag.integer(stretch.step, pos)}, pos);
  return builder.make(Op::add_, {scaled, dag.integer(stretch.begin, pos)}, pos);
}

ir::Attention first_class(const View& view, const ir::Attention& attention) {
  ir::Attention seen =
      rewrite::rebuilt(attention,
                       [&](rewrite::SimplifyingBuilder& builder, ir::Dag& dag, ExprId id,
                           const std::vector<ExprId>&) -> std::optional<ExprId> {
                         const Node& node = attention.dag[id];
                         if (node.is(Op::row_))
                           return index_of(view.rows, Op::row_, builder, dag, node.pos);
                         if (node.is(Op::column_))
                           return index_of(view.columns, Op::column_, builder, dag, node.pos);
                         return std::nullopt;
                       });
  seen.dims.set(Dim::Sq, view.rows.count);
  seen.dims.set(Dim::Skv, view.columns.count);
  seen.align = ir::Align::top_left;
  return seen;
}

}  // namespace

View whole_view(const ir::Attention& attention) {
  return {{.count = attention.dims[Dim::Sq]}, {.count = attention.dims[Dim::Skv]}, 1};
}

Writers writers(const std::vector<View>& parts, Stretch View::*stretch, std::int64_t size) {
  Writers result;
  std::vector<bool> taken(static_cast<std::size_t>(size));
  for (const View& part : parts) {
    const Stretch& s = part.*stretch;
    std::vector<std::size_t> indices;
    for (std::int64_t c = 0; c < part.classes; ++c) {
      for (std::int64_t i = 0; i < s.count; ++i) {
        indices.push_back(static_cast<std::size_t>(s.index(c, i)));
      }
    }
    const bool alone = std::ranges::none_of(indices, [&](std::size_t i) { return taken[i]; });
    if (alone) {
      for (const std::size_t i : indices) taken[i] = true;
    }
    result.alone.push_back(alone);
  }
  result.whole = std::ranges::all_of(taken, std::identity());
  return result;
}

std::optional<std::int64_t> change_of(const ir::Attention& attention, ExprId id, std::int64_t rows,
                                      std::int64_t columns) {
  return Changes(attention, id, rows, columns).run();
}

std::optional<ir::Attention> seen_through(const View& view, const ir::Attention& attention) {
  if (view == whole_view(attention)) return attention;
  if (!is_same_in_all_classes(view, attention)) return std::nullopt;
  return rewrite::run_pass("ranges", first_class(view, attention));
}

}  // namespace attn::engines
