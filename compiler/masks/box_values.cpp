#include "compiler/masks/box_values.h"

#include <algorithm>

namespace attn::masks {
namespace {

using ir::ExprId;
using ir::Op;
using ir::Type;

std::vector<ExprId> evaluated(const ir::Attention& attention) {
  std::vector<ExprId> roots = attention.masks;
  roots.push_back(attention.score);
  roots.push_back(attention.scale);
  if (attention.sink) roots.push_back(*attention.sink);
  for (const ir::KeySum& sum : attention.sums) roots.push_back(sum.value);
  if (attention.dropout && attention.dropout->keep) roots.push_back(*attention.dropout->keep);
  return roots;
}

std::vector<ExprId> each_once(std::vector<ExprId> ids) {
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

bool overlap(const Axes& x, const Axes& y) {
  return (x.batch && y.batch) || (x.head && y.head) || (x.row && y.row) || (x.column && y.column);
}

Sure opposite(Sure sure) {
  return sure == Sure::maybe ? sure : sure == Sure::yes ? Sure::no : Sure::yes;
}

RealRange converted(const Range& range) {
  return joined(RealRange::of(static_cast<double>(range.low)),
                RealRange::of(static_cast<double>(range.high)));
}

}  // namespace

BoxValues::BoxValues(const ir::Attention& attention)
    : attention_(attention),
      dag_(attention.dag),
      masks_(each_once(attention.masks)),
      roots_(evaluated(attention)),
      order_(ir::reachable(attention.dag, roots_)),
      integers_(attention, roots_, nullptr, Wrapping::followed),
      values_(order_.back() + 1),
      reals_(order_.back() + 1),
      counts_(order_.back() + 1),
      shows_(order_.back() + 1),
      reads_(order_.back() + 1),
      conjoins_(order_.back() + 1),
      axes_(order_.back() + 1) {
  Dependence dependence(dag_);
  for (const ExprId id : order_) {
    const ir::Node& node = dag_[id];
    reads_[id] = node.is(Op::load_) || node.is(Op::param_) ||
                 std::ranges::any_of(node.operands, [&](ExprId each) { return reads_[each]; });
    axes_[id] = dependence[id];
  }
  for (const ExprId mask : attention.masks) mark_conjuncts(mask);
}

void BoxValues::mark_conjuncts(ExprId mask) {
  if (!dag_[mask].is(Op::and_)) return;
  conjoins_[mask] = true;
  for (const ExprId operand : dag_[mask].operands) mark_conjuncts(operand);
}

void BoxValues::look_at(const Box& box, const Assumed& assumed) {
  agree_beside_ = assumed.agree_beside;
  doubt_shows_ = assumed.doubt_shows && is_single(box);
  integers_.look_at(box);
  for (const ExprId id : order_) {
    switch (dag_[id].type) {
      case Type::wide:
      case Type::integer: values_[id] = integers_[id]; break;
      case Type::boolean: set_boolean(id); break;
      case Type::real: set_real(id, assumed); break;
    }
  }
  for (const ExprId id : order_) set_shows(id);
  set_counts();
}

Sure BoxValues::holds(ExprId id) const {
  if (values_[id].is_true()) return Sure::yes;
  return values_[id].is_false() ? Sure::no : Sure::maybe;
}

void BoxValues::set_shows(ExprId id) {
  const ir::Node& node = dag_[id];
  if (node.type != Type::boolean) return;
  if (node.is(Op::and_)) {
    shows_[id] = std::min(shows_[node.operands[0]], shows_[node.operands[1]]);
    return;
  }
  const Sure sure = holds(id);
  const bool agrees = agree_beside_ && reads_[id] && !overlap(*agree_beside_, axes_[id]);
  shows_[id] = sure == Sure::maybe && (agrees || doubt_shows_) ? Sure::yes : sure;
}

// Recomputed, because operands may compare reals.
void BoxValues::set_boolean(ExprId id) {
  const ir::Node& node = dag_[id];
  const auto operand = [&](std::size_t i) { return values_[node.operands[i]]; };
  values_[id] = integers_[id];
  switch (node.op) {
    case Op::and_:
      values_[id] = {std::min(operand(0).low, operand(1).low),
                     std::min(operand(0).high, operand(1).high)};
      break;
    case Op::or_:
      values_[id] = {std::max(operand(0).low, operand(1).low),
                     std::max(operand(0).high, operand(1).high)};
      break;
    case Op::not_: values_[id] = {1 - operand(0).high, 1 - operand(0).low}; break;
    case Op::select_: {
      const Sure sure = holds(node.operands[0]);
      if (sure != Sure::maybe) values_[id] = operand(sure == Sure::yes ? 1 : 2);
      break;
    }
    default:
      if (ir::info(node.op).rule != ir::Rule::comparison) break;
      if (dag_[node.operands[0]].type != Type::real) break;
      values_[id] = compared(node.op, reals_[node.operands[0]], reals_[node.operands[1]]);
  }
}

void BoxValues::set_real(ExprId id, const Assumed& assumed) {
  const ir::Node& node = dag_[id];
  switch (node.op) {
    case Op::const_real_: reals_[id] = RealRange::of(dag_.real_of(id)); return;
    case Op::score_: reals_[id] = assumed.score; return;
    case Op::load_:
    case Op::param_: reals_[id] = assumed.inputs; return;
    case Op::to_real_: reals_[id] = converted(values_[node.operands[0]]); return;
    case Op::select_: reals_[id] = selected(node); return;
    default: break;
  }
  if (node.operands.empty()) {
    reals_[id] = {};
    return;
  }
  const RealRange& x = reals_[node.operands[0]];
  reals_[id] = real_range(node.op, x, node.operands.size() > 1 ? reals_[node.operands[1]] : x);
}

RealRange BoxValues::selected(const ir::Node& node) const {
  const Sure sure = holds(node.operands[0]);
  const RealRange &x = reals_[node.operands[1]], &y = reals_[node.operands[2]];
  if (sure == Sure::maybe) return joined(x, y);
  return sure == Sure::yes ? x : y;
}

void BoxValues::count(ExprId id, Sure sure) { counts_[id] = std::max(counts_[id], sure); }

// Sets what counts, from the roots down: users come after their operands. Scale and sink count in
// hidden rows too, and what is summed along keys at hidden keys.
void BoxValues::set_counts() {
  std::ranges::fill(counts_, Sure::no);
  const Sure shown = count_masks();
  for (std::size_t i = attention_.masks.size(); i < roots_.size(); ++i) count(roots_[i], shown);
  count(attention_.scale, Sure::yes);
  if (attention_.sink) count(*attention_.sink, Sure::yes);
  for (const ir::KeySum& sum : attention_.sums) count(sum.value, Sure::yes);
  for (std::size_t i = order_.size(); i-- > 0;) {
    const ExprId id = order_[i];
    const std::vector<ExprId>& operands = dag_[id].operands;
    if (counts_[id] == Sure::no) continue;
    for (std::size_t at = 0; at < operands.size(); ++at) count(operands[at], counts_by(id, at));
  }
}

// A mask counts where the others hold. Returns whether all masks hold.
Sure BoxValues::count_masks() {
  std::vector<Sure> behind(masks_.size() + 1, Sure::yes);  // minimum from here on
  for (std::size_t i = masks_.size(); i-- > 0;) {
    behind[i] = std::min(behind[i + 1], shows_[masks_[i]]);
  }
  Sure before = Sure::yes;
  for (std::size_t i = 0; i < masks_.size(); ++i) {
    count(masks_[i], std::min(before, behind[i + 1]));
    before = std::min(before, shows_[masks_[i]]);
  }
  return before;
}

Sure BoxValues::counts_by(ExprId user, std::size_t operand) const {
  const ir::Node& node = dag_[user];
  const Sure sure = counts_[user];
  if (node.is(Op::select_) && operand > 0) {
    const Sure first = holds(node.operands[0]);
    return std::min(sure, operand == 1 ? first : opposite(first));
  }
  if (node.is(Op::and_) || node.is(Op::or_)) {
    const ExprId beside = node.operands[1 - operand];
    const Sure other = conjoins_[user] ? shows_[beside] : holds(beside);
    return std::min(sure, node.is(Op::and_) ? other : opposite(other));
  }
  return sure;
}

}  // namespace attn::masks
