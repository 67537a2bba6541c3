#include "compiler/rewrite/ranged.h"

#include <algorithm>
#include <vector>

#include "compiler/masks/affine.h"
#include "compiler/masks/floor_div.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/masks/range.h"
#include "compiler/rewrite/pass.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/target/capabilities.h"

namespace attn::rewrite {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;

constexpr double kWorthwhile = 7.0 / 8;

bool is_tighter(const std::optional<std::int64_t>& bound, const std::optional<std::int64_t>& than) {
  return bound && (!than || *bound < *than);
}

// What the cover adds to the band.
masks::Band additions(const masks::Band& band, const masks::Band& cover,
                      const target::Context& context) {
  const bool backward =
      context.backward() && !can(target::Capability::backward_skips_right_of_diagonal, context);
  masks::Band added;
  if (!backward && is_tighter(cover.right, band.right)) added.right = cover.right;
  const bool causal = band.right && *band.right <= 0;
  const bool beside_right = band.right || added.right;
  if ((backward ? causal : beside_right) && is_tighter(cover.left, band.left)) {
    added.left = cover.left;
  }
  return added;
}

masks::Band both(masks::Band band, const masks::Band& added) {
  if (added.right) band.right = added.right;
  if (added.left) band.left = added.left;
  return band;
}

void add_bound(ir::Attention& attention, Op from, Op to, std::int64_t bound, ir::SourcePos pos) {
  ir::Dag& dag = attention.dag;
  const ExprId distance = dag.add(Op::sub_, {dag.leaf(to, pos), dag.leaf(from, pos)}, pos);
  attention.masks.push_back(dag.add(Op::le_, {distance, dag.integer(bound, pos)}, pos));
}

using Made = std::optional<ExprId>;

constexpr int kMostRounds = 4;  // each may enable more rewrites

class Round {
 public:
  explicit Round(const ir::Attention& attention)
      : from_(attention), roots_(attention.roots()), ranges_(attention, roots_) {
    ranges_.look_at(masks::whole_box(attention));
  }

  ir::Attention run() {
    return rebuilt(from_, [this](SimplifyingBuilder& builder, ir::Dag& dag, ExprId id,
                                 const std::vector<ExprId>& operands) {
      return made(builder, dag, id, operands);
    });
  }

 private:
  Made made(SimplifyingBuilder& builder, ir::Dag& dag, ExprId id,
            const std::vector<ExprId>& operands) const {
    const Node& node = from_.dag[id];
    if (node.op == Op::index_ || node.op == Op::param_ || node.op == Op::load_) return {};
    const masks::Range range = ranges_[id];
    if (node.type == ir::Type::boolean) {
      if (range.low == range.high) return dag.boolean(range.low != 0, node.pos);
      return is_decided_in_32_bits(node) ? narrowed(builder, node, operands) : Made();
    }
    if (node.type != ir::Type::integer) return {};
    if (range.low == range.high) return dag.integer(range.low, node.pos);
    switch (node.op) {
      case Op::floordiv_: return quotient(builder, dag, node, operands);
      case Op::mod_: return remainder(builder, dag, node, operands);
      case Op::abs_: return magnitude(builder, node, operands);
      case Op::min_: return chosen(node, operands, true);
      case Op::max_: return chosen(node, operands, false);
      default: return {};
    }
  }

  // Whether it compares wide integers, one of which certainly fits 32 bits: then the comparison has
  // the same result after the other one was narrowed.
  bool is_decided_in_32_bits(const Node& node) const {
    if (ir::info(node.op).rule != ir::Rule::comparison) return false;
    if (from_.dag[node.operands[0]].type != ir::Type::wide) return false;
    return std::ranges::any_of(node.operands, [this](ExprId id) {
      return ranges_[id].low > INT32_MIN && ranges_[id].high < INT32_MAX;
    });
  }

  static Made narrowed(SimplifyingBuilder& builder, const Node& node,
                       const std::vector<ExprId>& operands) {
    const auto narrow = [&](ExprId id) { return builder.make(Op::narrow_, {id}, node.pos); };
    return builder.make(node.op, {narrow(operands[0]), narrow(operands[1])}, node.pos);
  }

  std::int64_t divisor(const Node& node) const {
    const ExprId id = node.operands[1];
    return from_.dag[id].is(Op::const_int_) ? from_.dag.integer_of(id) : 0;
  }

  // x = n * y + rest, for all x.
  struct Split {
    masks::Affine y;
    std::int64_t rest = 0;
  };
  std::optional<Split> split(ExprId x, std::int64_t n) const {
    const std::optional<masks::Affine> affine = masks::affine_of(from_, x);
    if (!affine || affine->length_q != 0 || affine->length_kv != 0) return {};
    if (affine->row % n != 0 || affine->column % n != 0) return {};
    const std::int64_t whole = masks::floor_div(affine->constant, n);
    return Split{{affine->row / n, affine->column / n, whole}, affine->constant - whole * n};
  }

  Made quotient(SimplifyingBuilder& builder, ir::Dag& dag, const Node& node,
                const std::vector<ExprId>&) const {
    const std::int64_t n = divisor(node);
    if (n <= 0) return {};
    const std::optional<Split> parts = split(node.operands[0], n);
    return parts ? Made(expression(builder, dag, parts->y, node.pos)) : Made();
  }

  Made remainder(SimplifyingBuilder& builder, ir::Dag& dag, const Node& node,
                 const std::vector<ExprId>& operands) const {
    const std::int64_t n = divisor(node);
    if (n <= 0) return {};
    if (const std::optional<std::int64_t> rest = known_rest(node.operands[0], n)) {
      return dag.integer(*rest, node.pos);
    }
    const masks::Range x = ranges_[node.operands[0]];
    const std::int64_t whole = masks::floor_div(x.low, n);
    if (x == masks::Range{} || whole != masks::floor_div(x.high, n) || whole * n < INT32_MIN)
      return {};
    return builder.make(Op::sub_, {operands[0], dag.integer(whole * n, node.pos)}, node.pos);
  }

  std::optional<std::int64_t> known_rest(ExprId x, std::int64_t n) const {
    const Node& node = from_.dag[x];
    if (node.is(Op::abs_)) {
      const std::optional<std::int64_t> inner = known_rest(node.operands[0], n);
      return inner && (*inner == 0 || n == 2) ? inner : std::nullopt;
    }
    const std::optional<Split> parts = split(x, n);
    return parts ? std::optional(parts->rest) : std::nullopt;
  }

  ExprId expression(SimplifyingBuilder& builder, ir::Dag& dag, const masks::Affine& affine,
                    ir::SourcePos pos) const {
    const auto term = [&](std::int64_t factor, Op leaf) {
      return builder.make(Op::mul_, {dag.leaf(leaf, pos), dag.integer(factor, pos)}, pos);
    };
    const ExprId sum =
        builder.make(Op::add_, {term(affine.row, Op::row_), term(affine.column, Op::column_)}, pos);
    return builder.make(Op::add_, {sum, dag.integer(affine.constant, pos)}, pos);
  }

  Made magnitude(SimplifyingBuilder& builder, const Node& node,
                 const std::vector<ExprId>& operands) const {
    const masks::Range x = ranges_[node.operands[0]];
    if (x.low >= 0) return operands[0];
    if (x.high <= 0 && x.low > INT32_MIN) return builder.make(Op::neg_, {operands[0]}, node.pos);
    return {};
  }

  Made chosen(const Node& node, const std::vector<ExprId>& operands, bool smaller) const {
    const masks::Range x = ranges_[node.operands[0]], y = ranges_[node.operands[1]];
    if (x.high <= y.low) return operands[smaller ? 0 : 1];
    if (y.high <= x.low) return operands[smaller ? 1 : 0];
    return {};
  }

  const ir::Attention& from_;
  std::vector<ExprId> roots_;
  masks::Ranges ranges_;
};

// The operands of a chain of `op`: a || b || c.
void add_operands(const ir::Dag& dag, ExprId id, Op op, std::vector<ExprId>& operands) {
  if (!dag[id].is(op)) return operands.push_back(id);
  for (const ExprId operand : dag[id].operands) add_operands(dag, operand, op, operands);
}

std::vector<ExprId> without(std::vector<ExprId> ids, std::size_t i) {
  ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i));
  return ids;
}

// The same disjunction without parts that are false, or imply another part, where `masks` hold.
ExprId with_fewer_sides(ir::Attention& attention, const std::vector<ExprId>& masks, ExprId id,
                        masks::Effort& effort) {
  std::vector<ExprId> sides;
  add_operands(attention.dag, id, Op::or_, sides);
  if (sides.size() == 1) return id;
  for (std::size_t i = sides.size(); i-- > 0 && sides.size() > 1 && !effort.is_spent();) {
    std::vector<ExprId> holding = masks;
    holding.push_back(sides[i]);
    const std::vector<ExprId> rest = without(sides, i);
    if (masks::never(attention, holding, rest, effort)) sides = rest;
  }
  ExprId joined = sides.front();
  for (std::size_t i = 1; i < sides.size(); ++i) {
    joined = attention.dag.add(Op::or_, {joined, sides[i]}, attention.dag[id].pos);
  }
  return joined;
}

}  // namespace

ir::Attention with_bounding_band(const ir::Attention& attention, const target::Context& context,
                                 masks::Effort& effort) {
  if (!attention.dims.bound()) return attention;
  const masks::Analyzed mask = masks::analyzed(attention, context);
  if (mask->form().residual.empty()) return attention;
  const masks::Band band = mask->band();
  const masks::Band added = additions(band, mask->cover(effort), context);
  if (masks::band_share(attention.dims, both(band, added)) >
      kWorthwhile * masks::band_share(attention.dims, band)) {
    return attention;
  }
  ir::Attention covered = attention;
  const ir::SourcePos pos = attention.dag[mask->form().residual.front()].pos;
  if (added.right) add_bound(covered, Op::row_, Op::column_, *added.right, pos);
  if (added.left) add_bound(covered, Op::column_, Op::row_, *added.left, pos);
  return covered;
}

ir::Attention with_ranges(const ir::Attention& attention) {
  ir::Attention result = simplify(attention);
  if (!attention.dims.bound()) return result;
  for (int round = 0; round < kMostRounds; ++round) {
    ir::Attention next = simplify(Round(result).run());
    const bool same = ir::is_same(next, result);
    result = std::move(next);
    if (same) break;
  }
  return result;
}

ir::Attention without_redundant(const ir::Attention& attention, const target::Context& context,
                                masks::Effort& effort) {
  if (!attention.dims.bound()) return attention;
  ir::Attention result = attention;
  const masks::Analyzed analysis = masks::analyzed(attention, context);
  for (const ExprId mask : analysis->form().residual) {
    if (effort.is_spent()) break;
    const auto place = std::ranges::find(result.masks, mask);
    const auto at = static_cast<std::size_t>(place - result.masks.begin());
    const std::vector<ExprId> others = without(result.masks, at);
    const ExprId one[] = {mask};
    if (masks::never(result, others, one, effort)) {
      result.masks = others;
    } else {
      result.masks[at] = with_fewer_sides(result, others, mask, effort);
    }
  }
  return result;
}

ir::Attention pass::ranges(const ir::Attention& attention, const target::Context&, masks::Effort&) {
  return with_ranges(attention);
}

ir::Attention pass::bounding_band(const ir::Attention& attention, const target::Context& context,
                                  masks::Effort& effort) {
  return with_bounding_band(attention, context, effort);
}

ir::Attention pass::redundant(const ir::Attention& attention, const target::Context& context,
                              masks::Effort& effort) {
  return without_redundant(attention, context, effort);
}

}  // namespace attn::rewrite
