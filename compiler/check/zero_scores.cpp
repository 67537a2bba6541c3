#include "compiler/check/zero_scores.h"

#include <algorithm>

namespace attn::check {
namespace {

using ir::ExprId;
using ir::Op;

class Finder {
 public:
  Finder(const ir::Attention& attention, ExprId before) : dag_(attention.dag), before_(before) {}

  std::optional<Shown> find(ExprId id) const {
    const ir::Node& node = dag_[id];
    switch (node.op) {
      case Op::select_: return selected(node);
      case Op::mul_: return multiplied(node);
      case Op::add_:
      case Op::sub_: return of_both(node);
      case Op::div_:
      case Op::neg_:
      case Op::abs_:
      case Op::tanh_: return find(node.operands[0]);  // 0 of 0
      default: return std::nullopt;
    }
  }

  bool depends_on(ExprId id, ExprId on) const {
    const ExprId roots[] = {id};
    return std::ranges::binary_search(ir::reachable(dag_, roots), on);
  }
  bool reads(ExprId id, Op leaf) const {
    const ExprId roots[] = {id};
    return std::ranges::any_of(ir::reachable(dag_, roots),
                               [&](ExprId each) { return dag_[each].is(leaf); });
  }

  // Whether only the scores of one key become 0.
  bool is_single_key(const Shown& shown) const {
    const ir::Node& node = dag_[shown.condition];
    if (!node.is(shown.shows ? Op::ne_ : Op::eq_)) return false;
    return !reads(shown.condition, Op::row_) &&
           std::ranges::any_of(node.operands,
                               [&](ExprId each) { return dag_[each].is(Op::column_); });
  }

 private:
  std::optional<double> constant(ExprId id) const {
    if (dag_[id].is(Op::const_real_)) return dag_.real_of(id);
    if (dag_[id].is(Op::const_int_)) return static_cast<double>(dag_.integer_of(id));
    return std::nullopt;
  }

  std::optional<Shown> selected(const ir::Node& node) const {
    for (const bool shows : {true, false}) {
      const ExprId kept = node.operands[shows ? 1 : 2], other = node.operands[shows ? 2 : 1];
      if (constant(other) != 0.0 || !depends_on(kept, before_)) continue;
      return Shown{node.operands[0], shows, kept == before_};
    }
    return std::nullopt;
  }

  std::optional<Shown> multiplied(const ir::Node& node) const {
    for (const std::size_t i : {0, 1}) {
      const ExprId factor = node.operands[i], other = node.operands[1 - i];
      if (!depends_on(other, before_)) continue;
      if (auto shown = as_factor(factor)) {
        shown->unchanged = other == before_;
        return shown;
      }
    }
    for (const ExprId operand : node.operands) {
      if (auto shown = find(operand)) {
        shown->unchanged = false;
        return shown;
      }
    }
    return std::nullopt;
  }

  // A factor that is 1 or 0.
  std::optional<Shown> as_factor(ExprId id) const {
    while (dag_[id].is(Op::to_real_) || dag_[id].is(Op::to_int_)) id = dag_[id].operands[0];
    const ir::Node& node = dag_[id];
    if (node.type == ir::Type::boolean) return Shown{id, true};
    if (!node.is(Op::select_)) return std::nullopt;
    const auto then = constant(node.operands[1]), other = constant(node.operands[2]);
    if (then == 1.0 && other == 0.0) return Shown{node.operands[0], true};
    if (then == 0.0 && other == 1.0) return Shown{node.operands[0], false};
    return std::nullopt;
  }

  std::optional<Shown> of_both(const ir::Node& node) const {
    const auto left = find(node.operands[0]), right = find(node.operands[1]);
    if (!left || !right || left->condition != right->condition || left->shows != right->shows) {
      return std::nullopt;
    }
    return Shown{left->condition, left->shows};
  }

  const ir::Dag& dag_;
  ExprId before_;
};

}  // namespace

std::optional<Shown> shown_by_zeros(const ir::Attention& attention, ExprId before, ExprId after) {
  const Finder finder(attention, before);
  const std::optional<Shown> shown = finder.find(after);
  if (!shown || finder.reads(shown->condition, Op::score_)) return std::nullopt;
  if (!finder.reads(shown->condition, Op::column_)) return std::nullopt;
  return finder.is_single_key(*shown) ? std::nullopt : shown;
}

}  // namespace attn::check
