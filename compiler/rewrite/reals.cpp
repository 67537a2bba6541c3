#include "compiler/rewrite/reals.h"

#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "compiler/masks/range.h"
#include "compiler/rewrite/pass.h"

namespace attn::rewrite {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

// The cost of an integer expression in reals.
struct Cost {
  int operations = 0;
  bool divides = false;
  bool signs = false;  // may give -0.0, which integers do not have

  void operator+=(const Cost& other) {
    operations += other.operations;
    divides |= other.divides;
    signs |= other.signs;
  }
};

class RealIndices {
 public:
  explicit RealIndices(const ir::Attention& attention)
      : original_(attention),
        out_(attention),
        roots_(attention.roots()),
        ranges_(attention, roots_) {
    ranges_.look_at(masks::whole_box(attention));
  }

  ir::Attention run() && {
    out_.score = rewritten(original_.score);
    for (ExprId& mask : out_.masks) mask = rewritten(mask);
    return std::move(out_);
  }

 private:
  ir::Dag& dag() { return out_.dag; }

  ExprId rewritten(ExprId id) {
    if (const auto known = rewritten_.find(id); known != rewritten_.end()) return known->second;
    const ExprId made = crosses(id) ? in_reals(id) : with_rewritten_operands(id);
    rewritten_.emplace(id, made);
    return made;
  }

  ExprId with_rewritten_operands(ExprId id) {
    const Node node = original_.dag[id];
    if (node.is(Op::load_)) return id;  // its indices are integers
    std::vector<ExprId> operands;
    for (const ExprId operand : node.operands) operands.push_back(rewritten(operand));
    if (operands == node.operands) return id;
    return dag().add(node.op, operands, node.attribute, node.pos);
  }

  // Whether integers end here and are cheaper in reals.
  bool crosses(ExprId id) const {
    const Node& node = original_.dag[id];
    const bool compares = ir::info(node.op).rule == ir::Rule::comparison;
    if (!compares && !node.is(Op::to_real_)) return false;
    Cost all;
    for (const ExprId operand : node.operands) {
      const std::optional<Cost> cost = cost_of(operand);
      if (!cost) return false;
      all += *cost;
    }
    const bool pays = all.divides || (node.is(Op::to_real_) && all.operations > 0);
    return pays && all.operations <= kMostOperations;
  }

  // nullopt if it cannot be computed in reals.
  std::optional<Cost> cost_of(ExprId id) const {
    const Node& node = original_.dag[id];
    const masks::Range range = ranges_[id];
    if (node.type != ir::Type::integer || range.low <= -kWholeInReals ||
        range.high >= kWholeInReals)
      return {};
    Cost cost = own_cost(node.op);
    if (cost.operations < 0 || (cost.divides && !divides_by_constant(node))) return {};
    for (const ExprId operand : node.operands) {
      const std::optional<Cost> other = cost_of(operand);
      if (!other) return {};
      cost += *other;
      if (cost.operations > kMostOperations) return {};
    }
    return cost;
  }

  static Cost own_cost(Op op) {
    switch (op) {
      case Op::const_int_:
      case Op::batch_:
      case Op::head_:
      case Op::row_:
      case Op::column_: return {0};
      case Op::add_:
      case Op::sub_:
      case Op::abs_:
      case Op::min_:
      case Op::max_: return {1};
      case Op::mul_:
      case Op::neg_: return {1, false, true};
      case Op::floordiv_: return {3, true, true};
      case Op::mod_: return {5, true, true};
      default: return {-1};
    }
  }

  bool divides_by_constant(const Node& node) const {
    const ExprId divisor = node.operands[1];
    return original_.dag[divisor].is(Op::const_int_) && original_.dag.integer_of(divisor) > 0;
  }

  ExprId in_reals(ExprId id) {
    const Node node = original_.dag[id];
    if (node.is(Op::to_real_)) {
      if (!cost_of(node.operands[0])->signs) return real(node.operands[0]);
      // -0.0 + 0.0 is 0.0.
      return dag().add(Op::add_, {real(node.operands[0]), dag().real(0.0, node.pos)}, node.pos);
    }
    return dag().add(node.op, {real(node.operands[0]), real(node.operands[1])}, node.pos);
  }

  ExprId real(ExprId id) {
    const Node node = original_.dag[id];
    if (node.is(Op::const_int_)) return constant(original_.dag.integer_of(id), node.pos);
    if (node.operands.empty()) return dag().add(Op::to_real_, {id}, node.pos);
    const ExprId x = real(node.operands[0]);
    if (node.is(Op::floordiv_)) return quotient(x, divisor_of(node), node.pos);
    if (node.is(Op::mod_)) {
      const ExprId whole = quotient(x, divisor_of(node), node.pos);
      const ExprId product =
          dag().add(Op::mul_, {whole, constant(divisor_of(node), node.pos)}, node.pos);
      return dag().add(Op::sub_, {x, product}, node.pos);
    }
    if (node.operands.size() == 1) return dag().add(node.op, {x}, node.pos);
    return dag().add(node.op, {x, real(node.operands[1])}, node.pos);
  }

  ExprId quotient(ExprId x, std::int64_t divisor, ir::SourcePos pos) {
    // The product with a power of two is exact.
    const bool exact = std::has_single_bit(static_cast<std::uint64_t>(divisor));
    const ExprId shifted = exact ? x : dag().add(Op::add_, {x, dag().real(0.5, pos)}, pos);
    const ExprId inverse = dag().real(1 / static_cast<double>(divisor), pos);
    const ExprId product = dag().add(Op::mul_, {shifted, inverse}, pos);
    return dag().add(Op::floor_, {product}, pos);
  }

  std::int64_t divisor_of(const Node& node) const {
    return original_.dag.integer_of(node.operands[1]);
  }
  ExprId constant(std::int64_t value, ir::SourcePos pos) {
    return dag().real(static_cast<double>(value), pos);
  }

  const ir::Attention& original_;
  ir::Attention out_;
  std::vector<ExprId> roots_;
  masks::Ranges ranges_;
  std::map<ExprId, ExprId> rewritten_;
};

// The opposite of RealIndices, for a text: integers again, where they were.
class WrittenIndices {
 public:
  explicit WrittenIndices(const ir::Attention& attention) : out_(attention) {}

  std::string run(ExprId id) && {
    const auto integer = whole(id);
    const ExprId written = integer ? *integer : restored(id);
    return ir::to_source(out_, written);
  }

 private:
  ExprId restored(ExprId id) {
    if (const auto known = restored_.find(id); known != restored_.end()) return known->second;
    const Node node = dag()[id];
    std::vector<ExprId> operands;
    bool all_whole = node.type == ir::Type::boolean && !node.operands.empty();
    for (const ExprId operand : node.operands) {
      const auto integer = all_whole ? whole(operand) : std::nullopt;
      all_whole = integer.has_value();
      if (integer) operands.push_back(*integer);
    }
    if (!all_whole) {
      operands.clear();
      for (const ExprId operand : node.operands) operands.push_back(restored(operand));
    }
    return restored_[id] = node.operands.empty() ? id : dag().add_like(node, operands);
  }

  // The integer that a real expression of integers was.
  std::optional<ExprId> whole(ExprId id) {
    const Node node = dag()[id];
    if (node.type == ir::Type::integer) return restored(id);
    if (node.type != ir::Type::real) return std::nullopt;
    if (node.is(Op::to_real_)) return whole(node.operands[0]);
    if (const auto value = constant_of(id)) {
      if (std::floor(*value) != *value || std::abs(*value) > kWholeInReals) return std::nullopt;
      return dag().integer(static_cast<std::int64_t>(*value));
    }
    if (const auto quotient = quotient_of(id)) return divided(Op::floordiv_, *quotient);
    if (const auto rest = rest_of(node)) return divided(Op::mod_, *rest);
    if (ir::info(node.op).rule != ir::Rule::arithmetic) return std::nullopt;
    std::vector<ExprId> operands;
    for (const ExprId operand : node.operands) {
      const auto integer = whole(operand);
      if (!integer) return std::nullopt;
      operands.push_back(*integer);
    }
    return dag().add(node.op, operands, {}, node.pos);
  }

  // Dividend and divisor.
  using Division = std::pair<ExprId, std::int64_t>;

  // floor((x + 0.5) * (1 / c)), or without 0.5
  std::optional<Division> quotient_of(ExprId id) {
    if (!dag()[id].is(Op::floor_)) return std::nullopt;
    const Node product = dag()[dag()[id].operands[0]];
    const auto factor = product.is(Op::mul_) ? constant_of(product.operands[1]) : std::nullopt;
    if (!factor || *factor <= 0) return std::nullopt;
    const double divisor = std::round(1 / *factor);
    if (divisor < 2 || divisor > kWholeInReals || 1 / divisor != *factor) return std::nullopt;
    const auto whole = static_cast<std::int64_t>(divisor);
    if (std::has_single_bit(static_cast<std::uint64_t>(whole)))
      return Division{product.operands[0], whole};
    const Node shifted = dag()[product.operands[0]];
    const bool is_shifted = shifted.is(Op::add_) && constant_of(shifted.operands[1]) == 0.5;
    return is_shifted ? std::optional(Division{shifted.operands[0], whole}) : std::nullopt;
  }

  // x - (x // c) * c
  std::optional<Division> rest_of(const Node& node) {
    if (!node.is(Op::sub_)) return std::nullopt;
    const Node product = dag()[node.operands[1]];
    if (!product.is(Op::mul_)) return std::nullopt;
    const auto quotient = quotient_of(product.operands[0]);
    const bool is_rest = quotient && quotient->first == node.operands[0] &&
                         constant_of(product.operands[1]) == static_cast<double>(quotient->second);
    return is_rest ? quotient : std::nullopt;
  }

  std::optional<ExprId> divided(Op op, const Division& division) {
    const auto dividend = whole(division.first);
    if (!dividend) return std::nullopt;
    return dag().add(op, {*dividend, dag().integer(division.second)});
  }

  std::optional<double> constant_of(ExprId id) {
    return dag()[id].is(Op::const_real_) ? std::optional(dag().real_of(id)) : std::nullopt;
  }

  ir::Dag& dag() { return out_.dag; }

  ir::Attention out_;
  std::map<ExprId, ExprId> restored_;
};

}  // namespace

std::string as_written(const ir::Attention& attention, ExprId id) {
  return WrittenIndices(attention).run(id);
}

ir::Attention with_real_indices(const ir::Attention& attention) {
  return attention.dims.bound() ? RealIndices(attention).run() : attention;
}

ir::Attention pass::reals(const ir::Attention& attention, const target::Context&, masks::Effort&) {
  return with_real_indices(attention);
}

}  // namespace attn::rewrite
