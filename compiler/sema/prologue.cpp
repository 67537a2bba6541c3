#include "compiler/sema/prologue.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ir/prologues.h"
#include "compiler/sema/names.h"
#include "compiler/sema/scope.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using ast::Expr;
using diag::Code;
using ir::ExprId;
using ir::Op;
using support::quoted;

constexpr Site kPrologueSite{
    "a prologue", kElement | kColumn | kIndexes | kTensors | kLearned | kParams,
    "it may read elements `x[i]` of the row, `d_idx`, `b`, `h`, the position, tensors and params"};

// The name in the expression, or null.
const Expr* find_name(const Expr& expr, std::string_view name) {
  if (expr.kind == ast::ExprKind::name && expr.text == name) return &expr;
  for (const Expr& operand : expr.operands) {
    if (const Expr* found = find_name(operand, name)) return found;
  }
  return nullptr;
}

// Whether the prologue reads positions of its own tensor alone; if not, reports it.
bool reads_own_positions(const ast::PrologueClause& clause, const std::vector<ExprId>& roots,
                         const ir::Dag& dag, diag::Sink& sink) {
  const bool of_q = clause.tensor.text == "q";
  const Op other = of_q ? Op::column_ : Op::row_;
  const std::vector<ExprId> below = ir::reachable(dag, roots);
  if (std::ranges::none_of(below, [&](ExprId id) { return dag[id].is(other); })) return true;
  const std::string_view name = of_q ? "kv_idx" : "q_idx", own = of_q ? "q_idx" : "kv_idx";
  const Expr* place = find_name(clause.value, name);
  auto& diagnostic =
      sink.report(Code::not_available_here, place != nullptr ? place->span : clause.value.span,
                  fmt::format("{} cannot be used in a prologue of {}", quoted(name),
                              quoted(clause.tensor.text)));
  diagnostic.help =
      fmt::format("a row of {} has the position {}", quoted(clause.tensor.text), quoted(own));
  if (place != nullptr) diagnostic.add_replacement(place->span, own);
  return false;
}

}  // namespace

void add_prologue(const ast::PrologueClause& clause, ir::Attention& attention, Scope& scope,
                  diag::Sink& sink) {
  const std::string& tensor = clause.tensor.text;
  if (tensor != "q" && tensor != "k") {
    auto& diagnostic = sink.report(Code::bad_choice, clause.tensor.span,
                                   fmt::format("{} has no prologue", quoted(tensor)));
    const std::string_view words[] = {"q", "k"};
    expect_one_of(words, tensor == "v" ? "" : tensor, diagnostic, clause.tensor.span);
    return;
  }
  if (attention.cache && tensor == "k") return;  // it was reported
  if (attention.quantize) {
    sink.report(Code::not_available_here, clause.tensor.span,
                "8-bit attention has no prologue: what it makes would be rounded again, by a scale "
                "that no clause declares")
        .help = "use `dtype bf16;` without `quantize`, or compute it before q and k are rounded";
    return;
  }
  std::optional<ir::Prologue>& made = tensor == "q" ? attention.prologue_q : attention.prologue_k;
  ir::Prologue next = made.value_or(ir::Prologue{});
  scope.begin_prologue(tensor, &next, !made.has_value());
  const auto value = scope.check_as(clause.value, kPrologueSite, ir::Type::real, "");
  scope.begin_prologue("", nullptr);
  if (!value) return;
  std::vector<ExprId> roots = next.sums;
  roots.push_back(value->id);
  if (!reads_own_positions(clause, roots, attention.dag, sink)) return;
  next.value = value->id;
  if (!made) {
    const support::Place at = sink.source().place(clause.tensor.span.begin);
    next.pos = {at.line, at.column};
  }
  made = std::move(next);
}

bool Scope::is_element(const Expr& expr) const {
  if (row_of_.empty() || expr.text != kRow || find_local(expr.text) != nullptr) return false;
  return !sees_spec() || !symbols_.contains(expr.text);
}

bool Scope::is_row_hidden(const Expr& expr) {
  if (row_of_.empty() || expr.text != kRow || find_local(expr.text) != nullptr) return false;
  const auto found = symbols_.find(expr.text);
  if (!sees_spec() || found == symbols_.end()) return false;
  found->second.used = true;
  auto& diagnostic = report(Code::reserved_name, expr.head,
                            fmt::format("in a prologue {} is the row, and the spec has it for "
                                        "something else",
                                        quoted(kRow)));
  diagnostic.labels.push_back({found->second.span, "declared here"});
  diagnostic.help = "choose another name for that";
  return true;
}

std::optional<Value> Scope::element_of_row(const Expr& expr, const Site& site) {
  if (expr.operands.size() != 1) {
    report(
        Code::wrong_rank, expr.span,
        fmt::format("{} is a row and takes 1 index, found {}", quoted(kRow), expr.operands.size()))
        .help = "read `x[d_idx]`: the batch, the head and the position are those of the row";
    return std::nullopt;
  }
  const std::optional<Value> at = check(expr.operands[0], site);
  ir::Dag& dag = attention_.dag;
  const ir::SourcePos pos = operations_.place(expr.head);
  const Value depth = size(ir::Dim::Dqk, pos);
  if (!at || !index_fits(expr.operands[0], *at, depth.id)) return std::nullopt;
  Value result = *at;
  result.type = ir::Type::real;
  result.uses |= kElement | kHeads | kRows;
  const ExprId index = operations_.narrowed(*at).id;
  if (!is_first_prologue_) {
    result.id = ir::at_depth(dag, prologue_->value, index);
    result.uses |= kTensors | kParams | kLearned;
    result.size += 16, result.depth += 8;
    return result;
  }
  const ExprId indexes[] = {dag.leaf(Op::batch_, pos), dag.leaf(Op::head_, pos),
                            dag.leaf(row_of_ == "q" ? Op::row_ : Op::column_, pos), index};
  result.depth += 1;
  result.id = dag.add_symbol(Op::load_, row_of_, ir::Type::real, indexes, pos);
  return result;
}

std::optional<Value> Scope::row_sum(const Expr& expr, const Site& site) {
  std::optional<Value> summed = check(expr.operands[0], site);
  if (!summed) return std::nullopt;
  if (ir::is_integral(summed->type)) summed = operations_.to_real(*summed);
  if (!has_type(expr.operands[0], *summed, ir::Type::real, site)) return std::nullopt;
  const auto found = std::ranges::find(prologue_->sums, summed->id);
  const std::int64_t number = found - prologue_->sums.begin();
  if (found == prologue_->sums.end()) prologue_->sums.push_back(summed->id);
  Value result = *summed;
  result.uses |= kElement;
  result.id = attention_.dag.add(Op::row_sum_, {}, number, operations_.place(expr.head));
  return result;
}

}  // namespace attn::sema
