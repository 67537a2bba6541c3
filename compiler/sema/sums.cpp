#include "compiler/sema/sums.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/print.h"
#include "compiler/sema/names.h"
#include "compiler/sema/scope.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using ir::Dim;
using ir::ExprId;
using ir::Op;
using support::quoted;

constexpr Site kSumSite{
    "what is summed along keys", kIndexes | kTensors | kLearned | kParams,
    "it is summed before there are scores: it may read `b`, `h`, `kv_idx`, tensors and params"};

// The name of the query's index in an expression, or null.
const ast::Expr* find_row(const ast::Expr& expr) {
  if (expr.kind == ast::ExprKind::name && (expr.text == "q_idx" || expr.text == "q_raw"))
    return &expr;
  for (const ast::Expr& operand : expr.operands) {
    if (const ast::Expr* found = find_row(operand)) return found;
  }
  return nullptr;
}

// Reports a sum that differs by queries.
void report_row(const ast::Expr& summed, diag::Sink& sink) {
  const ast::Expr* row = find_row(summed);
  sink.report(Code::not_available_here, row != nullptr ? row->span : summed.span,
              row != nullptr
                  ? fmt::format("{} cannot be used in what is summed along keys", quoted(row->text))
                  : "what is summed along keys depends on the query")
      .help =
      "sums are the same for all queries: read them at two indexes, as in `c[q_idx] - "
      "c[kv_idx]`";
}

// Whether the name is free for a tensor in the workspace, and for its gradient.
bool is_free(const ast::Name& name, const ir::Attention& attention, diag::Sink& sink) {
  const auto report = [&](std::string what) {
    sink.report(Code::reserved_name, name.span, std::move(what)).help = "choose another name";
    return false;
  };
  if (contains(run_time_names(), name.text))
    return report(fmt::format("{} is a reserved name", quoted(name.text)));
  const std::string gradient = "d_" + name.text;
  if (attention.find_tensor(gradient) || attention.find_param(gradient))
    return report(
        fmt::format("{} has the name of a gradient of {}", quoted(gradient), quoted(name.text)));
  const bool is_gradient = name.text.starts_with("d_");
  const auto* of = is_gradient ? attention.find_tensor(name.text.substr(2)) : nullptr;
  if (of == nullptr || !of->learned) return true;
  return report(
      fmt::format("{} is reserved for the gradient of {}", quoted(name.text), quoted(of->name)));
}

bool has_leaf(const ir::Dag& dag, ExprId root, Op op) {
  const ExprId roots[] = {root};
  const std::vector<ExprId> below = ir::reachable(dag, roots);
  return std::ranges::any_of(below, [&](ExprId id) { return dag[id].is(op); });
}

}  // namespace

bool is_sum(const ast::Expr& value) {
  return value.kind == ast::ExprKind::call && value.text == kCumsum;
}

void report_sum_inside(const ast::Expr& call, diag::Sink& sink) {
  sink.report(
          Code::not_available_here, call.head,
          fmt::format("{} is a tensor, not a number, and stands alone in a `let`", quoted(kCumsum)))
      .help = ast::hint_for(
      sink.source(), "write `let c = cumsum(..);` above, and read `c[q_idx]` or `c[kv_idx]`");
}

std::optional<ir::KeySum> check_sum(const ast::LetClause& let, const ir::Attention& attention,
                                    Scope& scope, diag::Sink& sink) {
  if (let.value.operands.size() != 1) {
    sink.report(
        Code::wrong_argument_count, let.value.span,
        fmt::format("{} takes 1 argument, found {}", quoted(kCumsum), let.value.operands.size()));
    return std::nullopt;
  }
  const ast::Expr& summed = let.value.operands[0];
  const auto value =
      scope.check_as(summed, kSumSite, ir::Type::real,
                     "what is summed is a number: `float(x)` of a condition is 0 or 1");
  if (!value || !is_free(let.name, attention, sink)) return std::nullopt;
  if (has_leaf(attention.dag, value->id, Op::row_)) {
    report_row(summed, sink);
    return std::nullopt;
  }
  const support::Place at = sink.source().place(let.name.span.begin);
  ir::KeySum sum{{let.name.text, DType::f32, {}, {at.line, at.column}}, value->id};
  sum.tensor.learned = (value->uses & kLearned) != 0;
  sum.of_batch = has_leaf(attention.dag, value->id, Op::batch_);
  sum.of_head = has_leaf(attention.dag, value->id, Op::head_);
  return sum;
}

void Scope::define_sum(const ast::Name& name, std::optional<ir::KeySum> sum) {
  const auto found = symbols_.find(name.text);
  if (found == symbols_.end() || found->second.span != name.span) return;  // reported
  found->second.kind = sum ? Symbol::Kind::tensor : Symbol::Kind::poisoned;
  if (!sum) return;
  const ir::SourcePos pos = operations_.place(name.span);
  if (sum->of_batch) sum->tensor.extents.push_back(size(ir::Dim::B, pos).id);
  if (sum->of_head) sum->tensor.extents.push_back(size(ir::Dim::Hq, pos).id);
  sum->tensor.extents.push_back(size(ir::Dim::Skv, pos).id);
  attention_.sums.push_back(std::move(*sum));
}

}  // namespace attn::sema
