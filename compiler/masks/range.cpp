#include "compiler/masks/range.h"

#include <algorithm>
#include <array>

#include "compiler/ir/value.h"
#include "compiler/masks/floor_div.h"

namespace attn::masks {
namespace {

using ir::Op;

constexpr Range kAny{};

Range clip(std::int64_t low, std::int64_t high) {
  // A value outside 32 bits would wrap, so it may be anything.
  if (low < kAny.low || high > kAny.high) return kAny;
  return {low, high};
}

Range index_below(std::optional<std::int64_t> size) {
  return size ? Range{0, *size - 1} : Range{0, kAny.high};
}

Range hull(const std::array<std::int64_t, 4>& corners) {
  const auto [low, high] = std::minmax_element(corners.begin(), corners.end());
  return {*low, *high};
}
Range of_products(const std::array<std::int64_t, 4>& corners) {
  const Range exact = hull(corners);
  return clip(exact.low, exact.high);
}

Range magnitude(Range x) {
  const std::int64_t high = std::max(std::abs(x.low), std::abs(x.high));
  if (x.low <= 0 && x.high >= 0) return clip(0, high);
  return clip(std::min(std::abs(x.low), std::abs(x.high)), high);
}

Range quotient(Range x, Range y) {
  if (y.low <= 0) return kAny;
  return of_products({floor_div(x.low, y.low), floor_div(x.low, y.high), floor_div(x.high, y.low),
                      floor_div(x.high, y.high)});
}

Range remainder(Range x, Range y) {
  if (y.low <= 0) return kAny;
  if (x.low >= 0 && x.high < y.low) return x;
  const std::int64_t whole = floor_div(x.low, y.low);
  if (y.low == y.high && whole == floor_div(x.high, y.low)) {
    return {x.low - whole * y.low, x.high - whole * y.low};
  }
  return {0, y.high - 1};
}

// A result of 64 bits, or anything if it wraps.
struct Wide {
  std::int64_t value = 0;
  bool wraps = false;
};

Wide sum(std::int64_t x, std::int64_t y) {
  Wide result;
  result.wraps = __builtin_add_overflow(x, y, &result.value);
  return result;
}

Wide difference(std::int64_t x, std::int64_t y) {
  Wide result;
  result.wraps = __builtin_sub_overflow(x, y, &result.value);
  return result;
}

Wide product(std::int64_t x, std::int64_t y) {
  Wide result;
  result.wraps = __builtin_mul_overflow(x, y, &result.value);
  return result;
}

Range hull_of_wide(std::initializer_list<Wide> corners) {
  Range range{INT64_MAX, INT64_MIN};
  for (const auto& [value, wraps] : corners) {
    if (wraps) return kAnyWide;
    range = {std::min(range.low, value), std::max(range.high, value)};
  }
  return range;
}

Range wide_remainder(Range x, Range y) {
  if (y.low <= 0) return kAnyWide;
  return x.low >= 0 && x.high < y.low ? x : Range{0, y.high - 1};
}

Range unite(Range x, Range y) { return {std::min(x.low, y.low), std::max(x.high, y.high)}; }

constexpr Range kEither{0, 1};

bool is_boolean(const ir::Node& node) { return node.type == ir::Type::boolean; }

Range unknown(const ir::Node& node) {
  if (is_boolean(node)) return kEither;
  return node.type == ir::Type::wide ? kAnyWide : kAny;
}

Range boolean(bool can_be_true, bool can_be_false) { return {can_be_false ? 0 : 1, can_be_true}; }

Range less(Range x, Range y) { return boolean(x.low < y.high, x.high >= y.low); }
Range less_equal(Range x, Range y) { return boolean(x.low <= y.high, x.high > y.low); }

Range equal(Range x, Range y) {
  const bool overlap = x.low <= y.high && y.low <= x.high;
  const bool same = x.low == x.high && x == y;
  return boolean(overlap, !same);
}

Range opposite(Range x) { return {1 - x.high, 1 - x.low}; }

Range smaller(Range x, Range y) { return {std::min(x.low, y.low), std::min(x.high, y.high)}; }
Range larger(Range x, Range y) { return {std::max(x.low, y.low), std::max(x.high, y.high)}; }

// The range of an operation on bits, which may exceed 32: exact for single numbers only.
Range bits(Op op, Range x, Range y) {
  if (x.low != x.high || y.low != y.high) return kAny;
  const auto value = ir::value_of_integers(op, x.low, y.low);
  return value ? Range{*value, *value} : kAny;
}

Range comparison(Op op, Range x, Range y) {
  switch (op) {
    case Op::lt_: return less(x, y);
    case Op::le_: return less_equal(x, y);
    case Op::gt_: return less(y, x);
    case Op::ge_: return less_equal(y, x);
    case Op::eq_: return equal(x, y);
    case Op::ne_: return opposite(equal(x, y));
    default: return kEither;
  }
}

}  // namespace

bool is_single(const Box& box) {
  const Range axes[] = {box.batch, box.head, box.row, box.column};
  return std::ranges::all_of(axes, [](const Range& axis) { return axis.low == axis.high; });
}

Box whole_box(const ir::Attention& attention) {
  const ir::Dims& dims = attention.dims;
  return {index_below(dims.get(ir::Dim::B)), index_below(dims.get(ir::Dim::Hq)),
          index_below(dims.get(ir::Dim::Sq)), index_below(dims.get(ir::Dim::Skv))};
}

Ranges::Ranges(const ir::Attention& attention, std::span<const ir::ExprId> roots,
               const KnownInputs* known, Wrapping wrapping)
    : attention_(attention), dag_(attention.dag), known_(known), wrapping_(wrapping) {
  Steps all;
  for (const ir::ExprId id : ir::reachable(dag_, roots)) {
    const ir::Node& node = dag_[id];
    all.steps.push_back({id, static_cast<std::uint32_t>(all.operands.size()), &node});
    all.operands.insert(all.operands.end(), node.operands.begin(), node.operands.end());
  }
  all.roots.assign(roots.begin(), roots.end());
  const std::size_t size = all.steps.empty() ? 0 : all.steps.back().id + 1;
  all_ = last_ = std::make_shared<const Steps>(std::move(all));
  ranges_.resize(size);
  settled_.resize(size);
  needed_.resize(size);
  is_root_.resize(size);
  instead_.resize(size);
  for (const ir::ExprId root : roots) is_root_[root] = true;
}

Ranges::Operands Ranges::operands_of(const Steps& steps, const Step& step) const {
  return std::span(steps.operands).subspan(step.first, step.node->operands.size());
}

void Ranges::look_at(const Box& box, const Unsettled& within) {
  last_ = within;
  count_ = 0;
  for (const auto& [id, range] : within->settled) {
    ranges_[id] = range;
    settled_[id] = true;
  }
  for (const Step& step : within->steps) {
    const Operands operands = operands_of(*within, step);
    const Range range = of(*step.node, operands, box);
    const bool is_settled = settles(*step.node, operands, range);
    ranges_[step.id] = range;
    settled_[step.id] = is_settled;
    count_ += is_settled ? 1 : 0;
  }
}

bool Ranges::are_settled() const {
  return std::ranges::all_of(last_->roots, [this](ir::ExprId id) { return is_settled(id); });
}

bool Ranges::settles(const ir::Node& node, Operands operands, const Range& range) const {
  if (range.low == range.high || node.type == ir::Type::real) return true;
  if (operands.empty()) {
    return !node.is(Op::batch_) && !node.is(Op::head_) && !node.is(Op::row_) &&
           !node.is(Op::column_);
  }
  if (node.is(Op::load_) && known_ == nullptr) return true;
  const auto is_settled = [&](ir::ExprId id) -> bool { return settled_[id]; };
  return std::ranges::all_of(operands, is_settled) || hides_other(node, operands);
}

// Whether an operand may be any number of 32 bits, and hides the range of the other one: x - y and
// x < y.
bool Ranges::hides_other(const ir::Node& node, Operands operands) const {
  if (operands.size() != 2) return false;
  const bool compares = ir::info(node.op).rule == ir::Rule::comparison;
  const bool adds = node.type == ir::Type::integer && (node.is(Op::add_) || node.is(Op::sub_));
  if (!compares && !adds) return false;
  for (const bool second : {false, true}) {
    const ir::ExprId any = operands[second ? 1 : 0];
    if (!settled_[any] || ranges_[any] != kAny) continue;
    const Range& other = ranges_[operands[second ? 0 : 1]];
    return !compares || (other.low > kAny.low && other.high < kAny.high);
  }
  return false;
}

// The operand with the same range in all boxes within the last one.
std::optional<ir::ExprId> Ranges::forwarded(const ir::Node& node, Operands operands) const {
  const auto range = [&](std::size_t i) { return ranges_[operands[i]]; };
  switch (node.op) {
    case Op::and_:
    case Op::min_:
      if (range(0).high <= range(1).low) return operands[0];
      return range(1).high <= range(0).low ? std::optional(operands[1]) : std::nullopt;
    case Op::or_:
    case Op::max_:
      if (range(0).low >= range(1).high) return operands[0];
      return range(1).low >= range(0).high ? std::optional(operands[1]) : std::nullopt;
    case Op::select_:
      if (range(0).is_true()) return operands[1];
      return range(0).is_false() ? std::optional(operands[2]) : std::nullopt;
    default: return std::nullopt;
  }
}

// A step is worth as much as it costs to leave it out only if its like are many.
Unsettled Ranges::unsettled() {
  constexpr std::size_t kFew = 8, kPart = 4;
  const std::size_t steps = last_->steps.size();
  if (steps <= kFew || count_ * kPart < steps) return last_;
  mark_needed(*last_);
  last_ = std::make_shared<const Steps>(remaining(*last_));
  count_ = 0;
  return last_;
}

// Visits from the roots down, with what is evaluated instead of a step.
void Ranges::mark_needed(const Steps& from) {
  for (const ir::ExprId root : from.roots) needed_[root] = !settled_[root];
  for (std::size_t i = from.steps.size(); i-- > 0;) {
    const auto& [id, first, node] = from.steps[i];
    instead_[id] = id;
    if (!needed_[id] || settled_[id]) continue;
    const Operands operands = operands_of(from, from.steps[i]);
    const auto other = is_root_[id] ? std::nullopt : forwarded(*node, operands);
    if (other) {
      instead_[id] = *other;
      needed_[*other] = true;
      continue;
    }
    for (const ir::ExprId operand : operands) needed_[operand] = true;
  }
}

// Those of the steps that are marked as needed, which ends the marks.
Steps Ranges::remaining(const Steps& from) {
  Steps left;
  left.has_undecided_root = from.has_undecided_root;
  for (const ir::ExprId root : from.roots) {
    if (!settled_[root]) left.roots.push_back(root);
    left.has_undecided_root |= settled_[root] && ranges_[root].low != ranges_[root].high;
  }
  for (const auto& [id, range] : from.settled) {
    instead_[id] = id;
    if (needed_[id]) left.settled.emplace_back(id, range);
    needed_[id] = false;
  }
  for (const Step& step : from.steps) {
    if (!needed_[step.id]) continue;
    needed_[step.id] = false;
    if (settled_[step.id]) {
      left.settled.emplace_back(step.id, ranges_[step.id]);
    } else if (instead_[step.id] != step.id) {
      instead_[step.id] = instead_[instead_[step.id]];
    } else {
      left.steps.push_back({step.id, static_cast<std::uint32_t>(left.operands.size()), step.node});
      for (const ir::ExprId operand : operands_of(from, step)) {
        left.operands.push_back(instead_[operand]);
      }
    }
  }
  return left;
}

Range Ranges::of(const ir::Node& node, Operands operands, const Box& box) const {
  return operands.empty() ? leaf(node, box) : operation(node, operands);
}

Range Ranges::leaf(const ir::Node& node, const Box& box) const {
  switch (node.op) {
    case Op::const_bool_:
      return boolean(std::get<bool>(node.attribute), !std::get<bool>(node.attribute));
    case Op::const_int_: {
      const std::int64_t value = std::get<std::int64_t>(node.attribute);
      return clip(value, value);
    }
    case Op::const_wide_: {
      const std::int64_t value = std::get<std::int64_t>(node.attribute);
      return {value, value};
    }
    case Op::batch_: return box.batch;
    case Op::head_: return box.head;
    case Op::row_: return box.row;
    case Op::column_: return box.column;
    case Op::dim_: return {1, kAny.high};
    default: break;
  }
  if (const auto value = known(node, {})) return *value;
  return unknown(node);
}

// Numbers are cut into pieces of 32 bits, which are all the same: those of two may be anything.
Range Ranges::wrapped(Range exact) const {
  if (wrapping_ == Wrapping::unknown) return clip(exact.low, exact.high);
  constexpr std::int64_t kPiece = std::int64_t{1} << 32;
  const std::int64_t before = floor_div(exact.low - kAny.low, kPiece) * kPiece;
  return clip(exact.low - before, exact.high - before);
}

// What does not wrap; an element and a choice are those of other integers.
Range Ranges::wide_operation(Op op, const Range& x, const Range& y) {
  switch (op) {
    case Op::widen_: return x;
    case Op::add_: return hull_of_wide({sum(x.low, y.low), sum(x.high, y.high)});
    case Op::sub_: return hull_of_wide({difference(x.low, y.high), difference(x.high, y.low)});
    case Op::mul_:
      return hull_of_wide({product(x.low, y.low), product(x.low, y.high), product(x.high, y.low),
                           product(x.high, y.high)});
    case Op::neg_: return hull_of_wide({difference(0, x.low), difference(0, x.high)});
    case Op::abs_: return x.low >= 0 ? x : kAnyWide;
    case Op::min_: return smaller(x, y);
    case Op::max_: return larger(x, y);
    case Op::mod_: return wide_remainder(x, y);
    default: return kAnyWide;
  }
}

Range Ranges::operation(const ir::Node& node, Operands operands) const {
  const Range x = ranges_[operands[0]];
  const Range y = operands.size() > 1 ? ranges_[operands[1]] : x;
  if (node.type == ir::Type::wide && !node.is(Op::load_) && !node.is(Op::select_)) {
    return wide_operation(node.op, x, y);
  }
  switch (node.op) {
    case Op::narrow_: return {ir::narrowed(x.low), ir::narrowed(x.high)};
    case Op::add_: return wrapped({x.low + y.low, x.high + y.high});
    case Op::sub_: return wrapped({x.low - y.high, x.high - y.low});
    case Op::mul_:
      return wrapped(hull({x.low * y.low, x.low * y.high, x.high * y.low, x.high * y.high}));
    case Op::neg_: return wrapped({-x.high, -x.low});
    case Op::abs_: return magnitude(x);
    case Op::min_:
    case Op::and_: return smaller(x, y);
    case Op::max_:
    case Op::or_: return larger(x, y);
    case Op::not_: return opposite(x);
    case Op::to_int_: return x;
    case Op::load_: return load(node, operands);
    case Op::floordiv_: return quotient(x, y);
    case Op::mod_: return remainder(x, y);
    case Op::select_: {
      if (x.is_true()) return y;
      const Range z = ranges_[operands[2]];
      return x.is_false() ? z : unite(y, z);
    }
    default: break;
  }
  if (ir::info(node.op).rule == ir::Rule::bits) return wrapped(bits(node.op, x, y));
  if (!is_boolean(node)) return kAny;
  return ir::is_integral(dag_[node.operands[0]].type) ? comparison(node.op, x, y) : kEither;
}

std::optional<Range> Ranges::known(const ir::Node& node, Operands operands) const {
  if (known_ == nullptr || node.type == ir::Type::real) return std::nullopt;
  if (node.is(Op::param_)) return known_->param(std::get<std::string>(node.attribute));
  if (!node.is(Op::load_)) return std::nullopt;
  indexes_.clear();
  for (const ir::ExprId index : operands) indexes_.push_back(ranges_[index]);
  return known_->elements(std::get<std::string>(node.attribute), indexes_);
}

Range Ranges::load(const ir::Node& node, Operands operands) const {
  if (const auto value = known(node, operands)) return *value;
  const std::string& name = std::get<std::string>(node.attribute);
  const auto up_to = [&](ir::Dim dim) {
    return Range{0, attention_.dims.get(dim).value_or(kAny.high)};
  };
  if (attention_.lengths_q && name == ir::kLengthsQ) return up_to(ir::Dim::Sq);
  if (attention_.lengths_kv && name == ir::kLengthsKv) return up_to(ir::Dim::Skv);
  return unknown(node);
}

WholeRanges::WholeRanges(const ir::Attention& attention)
    : ranges_(attention, {}), box_(whole_box(attention)) {}

Range WholeRanges::operator[](ir::ExprId id) {
  std::vector<Range>& known = ranges_.ranges_;
  while (known.size() <= id) {
    const ir::Node& node = ranges_.dag_[static_cast<ir::ExprId>(known.size())];
    known.push_back(ranges_.of(node, node.operands, box_));
  }
  return known[id];
}

Range range_of(const ir::Attention& attention, ir::ExprId id) {
  const ir::ExprId roots[] = {id};
  Ranges ranges(attention, roots);
  ranges.look_at(whole_box(attention));
  return ranges[id];
}

}  // namespace attn::masks
