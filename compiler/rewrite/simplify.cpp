#include "compiler/rewrite/simplify.h"

#include <algorithm>
#include <limits>

#include "compiler/rewrite/pass.h"
#include "compiler/rewrite/simplify_rules.h"

namespace attn::rewrite {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

constexpr double kHidden = -std::numeric_limits<double>::infinity();

class Simplifier {
 public:
  explicit Simplifier(const ir::Attention& from)
      : from_(from), out_(from), builder_(out_.dag), ids_(from.dag.size()) {
    out_.dag = {};
    out_.masks.clear();
  }

  ir::Attention simplify() && {
    for (ExprId id : ir::reachable(from_.dag, from_.roots())) ids_[id] = rebuilt(from_.dag[id]);
    for (ExprId* place : out_.root_places()) *place = ids_[*place];
    for (ExprId mask : from_.masks) add_conjuncts(ids_[mask]);
    out_.score = unmasked(out_.score);
    keep_false_alone();
    return std::move(out_);
  }

 private:
  ExprId rebuilt(const Node& node) {
    std::vector<ExprId> operands;
    for (ExprId operand : node.operands) operands.push_back(ids_[operand]);
    if (node.is(Op::dim_)) return size_of(node);
    const bool is_symbol = ir::info(node.op).rule == ir::Rule::symbol_type;
    if (operands.empty() || is_symbol) return out_.dag.add_like(node, operands);
    return builder_.make(node.op, operands, node.pos);
  }

  ExprId size_of(const Node& dim) {
    const std::string& name = std::get<std::string>(dim.attribute);
    const auto size = from_.dims.get(*ir::parse_dim(name));
    const bool fits = size && *size <= std::numeric_limits<std::int32_t>::max();
    return fits ? out_.dag.integer(*size, dim.pos) : out_.dag.dim(name, dim.pos);
  }

  void add_conjuncts(ExprId mask) {
    const Node node = out_.dag[mask];
    if (node.is(Op::and_)) {
      for (ExprId operand : node.operands) add_conjuncts(operand);
      return;
    }
    const bool is_true = node.is(Op::const_bool_) && out_.dag.boolean_of(mask);
    const bool is_known = std::ranges::find(out_.masks, mask) != out_.masks.end();
    if (!is_true && !is_known) out_.masks.push_back(mask);
  }

  // The score without selects of -inf; their conditions become masks.
  ExprId unmasked(ExprId score) {
    const Node node = out_.dag[score];
    if (!node.is(Op::select_)) return score;
    const ExprId condition = node.operands[0], x = node.operands[1], y = node.operands[2];
    if (!is_hidden(x) && !is_hidden(y)) return score;
    if (depends_on_score(condition)) return score;
    add_conjuncts(is_hidden(y) ? condition : builder_.negate(condition));
    return unmasked(is_hidden(y) ? x : y);
  }

  bool is_hidden(ExprId id) const {
    return out_.dag[id].is(Op::const_real_) && out_.dag.real_of(id) == kHidden;
  }

  // Masks must not: a kernel's masks know positions only.
  bool depends_on_score(ExprId id) const {
    const ExprId roots[] = {id};
    return std::ranges::any_of(ir::reachable(out_.dag, roots),
                               [&](ExprId node) { return out_.dag[node].is(Op::score_); });
  }

  void keep_false_alone() {
    const auto found = std::ranges::find_if(
        out_.masks, [&](ExprId mask) { return out_.dag[mask].is(Op::const_bool_); });
    if (found != out_.masks.end()) out_.masks = {*found};
  }

  const ir::Attention& from_;
  ir::Attention out_;
  SimplifyingBuilder builder_;
  std::vector<ExprId> ids_;  // of a node's simplified form, by its id in `from_`
};

}  // namespace

ir::Attention simplify(const ir::Attention& attention) { return Simplifier(attention).simplify(); }

ir::Attention pass::simplify(const ir::Attention& attention, const target::Context&,
                             masks::Effort&) {
  return rewrite::simplify(attention);
}

}  // namespace attn::rewrite
