#include "compiler/rewrite/cancelled.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "compiler/ir/value.h"
#include "compiler/masks/affine.h"
#include "compiler/rewrite/pass.h"

namespace attn::rewrite {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;

// The value of an expression of the head and constants at `head`.
std::optional<ir::Constant> value_for_head(const ir::Dag& dag, ExprId id, std::int64_t head) {
  if (dag[id].is(Op::head_)) return head;
  if (const auto constant = ir::constant_of(dag, id)) return constant;
  std::vector<ir::Constant> operands;
  for (const ExprId operand : dag[id].operands) {
    const auto value = value_for_head(dag, operand, head);
    if (!value) return std::nullopt;
    operands.push_back(*value);
  }
  return operands.empty() ? std::nullopt : ir::fold(dag[id].op, operands);
}

// The largest magnitude over all heads; nullopt if unknown or not finite.
std::optional<double> largest(const ir::Attention& attention, ExprId factor) {
  double largest = 0;
  for (std::int64_t head = 0; head < attention.dims[Dim::Hq]; ++head) {
    const auto value = value_for_head(attention.dag, factor, head);
    if (!value || !std::holds_alternative<double>(*value)) return std::nullopt;
    const double size = std::abs(std::get<double>(*value));
    if (!std::isfinite(size)) return std::nullopt;
    largest = std::max(largest, size);
  }
  return largest;
}

// Whether by * index + constant fits 32 bits in any order of evaluation: the sum may fit where its
// parts do not.
bool fits(std::int64_t by, std::int64_t extent, std::int64_t constant) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  return std::abs(by) <= kMost && std::abs(constant) <= kMost &&
         std::abs(by) * (extent - 1) + std::abs(constant) <= kMost;
}

class CancelledSearch {
 public:
  explicit CancelledSearch(const ir::Attention& attention)
      : attention_(attention), out_(attention) {}

  std::optional<Cancelled> run() && {
    out_.score = without(attention_.score, false);
    if (!term_) return std::nullopt;
    return Cancelled{std::move(out_), *term_};
  }

 private:
  ir::Dag& dag() { return out_.dag; }

  // The sum without what cancels; `negative` if it is subtracted.
  ExprId without(ExprId id, bool negative) {
    const Node node = dag()[id];
    if (node.is(Op::add_) || node.is(Op::sub_)) {
      const ExprId x = without(node.operands[0], negative);
      const ExprId y = without(node.operands[1], negative != node.is(Op::sub_));
      return x == node.operands[0] && y == node.operands[1] ? id
                                                            : dag().add(node.op, {x, y}, node.pos);
    }
    if (!node.is(Op::mul_)) return id;
    for (const std::size_t i : {0U, 1U}) {
      const ExprId factor = node.operands[i], index = node.operands[1 - i];
      if (!dag()[index].is(Op::to_real_)) continue;
      if (const auto kept = split(factor, dag()[index].operands[0], negative, node.pos))
        return *kept;
    }
    return id;
  }

  // The part of factor * index that depends on the column; the other part is added to the term.
  std::optional<ExprId> split(ExprId factor, ExprId index, bool negative, ir::SourcePos pos) {
    if (dag()[index].type != ir::Type::integer) return std::nullopt;
    const std::optional<masks::Affine> affine = masks::affine_of(attention_, index);
    if (!affine || affine->column == 0 || affine->length_q != 0 || affine->length_kv != 0)
      return {};
    if (affine->row == 0 && affine->constant == 0) return std::nullopt;
    const ir::Dims& dims = attention_.dims;
    if (!fits(affine->column, dims[Dim::Skv], 0) ||
        !fits(affine->row, dims[Dim::Sq], affine->constant))
      return std::nullopt;
    const std::optional<double> size = largest(attention_, factor);
    const std::int64_t last = std::abs(affine->column) * (attention_.dims[Dim::Skv] - 1);
    if (!size || *size * static_cast<double>(last) > kLargestColumnTerm) return std::nullopt;
    add_term(product(factor, {affine->row, 0, affine->constant}, pos), negative, pos);
    return product(factor, {0, affine->column, 0}, pos);
  }

  ExprId product(ExprId factor, const masks::Affine& affine, ir::SourcePos pos) {
    const auto part = [&](std::int64_t by, Op leaf) {
      const ExprId index = dag().leaf(leaf, pos);
      return by == 1 ? index : dag().add(Op::mul_, {index, dag().integer(by, pos)}, pos);
    };
    ExprId sum = affine.column != 0 ? part(affine.column, Op::column_) : part(affine.row, Op::row_);
    if (affine.constant != 0) {
      sum = dag().add(Op::add_, {sum, dag().integer(affine.constant, pos)}, pos);
    }
    return dag().add(Op::mul_, {factor, dag().add(Op::to_real_, {sum}, pos)}, pos);
  }

  void add_term(ExprId term, bool negative, ir::SourcePos pos) {
    if (negative) term = dag().add(Op::neg_, {term}, pos);
    term_ = term_ ? dag().add(Op::add_, {*term_, term}, pos) : term;
  }

  const ir::Attention& attention_;
  ir::Attention out_;
  std::optional<ExprId> term_;
};

}  // namespace

std::optional<Cancelled> without_cancelled(const ir::Attention& attention) {
  const bool more_is_known = attention.wants_max_or_sum();
  const bool ragged = attention.layouts.find("o")->second.kind == ir::LayoutKind::thd;
  const bool lengths = attention.lengths_q || attention.lengths_kv || ragged;
  if (attention.sink || more_is_known || lengths || attention.dims[Dim::Sq] <= 1) return {};
  if (!attention.is_softmax()) return {};  // cancels nothing
  return CancelledSearch(attention).run();
}

ir::Attention pass::cancelled(const ir::Attention& attention, const target::Context&,
                              masks::Effort&) {
  if (!attention.dims.bound()) return attention;
  std::optional<Cancelled> without = without_cancelled(attention);
  return without ? std::move(without->attention) : attention;
}

}  // namespace attn::rewrite
