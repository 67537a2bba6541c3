#include "compiler/sema/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/sema/names.h"
#include "compiler/sema/quotient.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using ir::ExprId;
using ir::Op;
using ir::Type;
using support::quoted;

constexpr Site kWeightSite{"a weight", kScore | kIndexes | kTensors | kLearned | kSums | kParams};

ir::SourcePos place(const diag::Sink& sink, support::Span span) {
  const support::Place at = sink.source().place(span.begin);
  return {at.line, at.column};
}

void set_normalize(const ast::NormalizeClause& clause, ir::Attention& attention, diag::Sink& sink) {
  const std::string_view words[] = {to_string(ir::Normalize::softmax),
                                    to_string(ir::Normalize::sigmoid)};
  if (!contains(words, clause.by.text)) {
    auto& diagnostic =
        sink.report(Code::bad_choice, clause.by.span,
                    fmt::format("{} does not make weights of scores", quoted(clause.by.text)));
    if (clause.by.text == "softmax1" || clause.by.text == "softmax_one") {
      diagnostic.help = "for softmax with 1 added to its denominator, write `sink 0;`";
    } else {
      expect_one_of(words, clause.by.text, diagnostic, clause.by.span);
      if (diagnostic.fixes.empty())
        diagnostic.help += ", or a clause such as `weight relu(score);`";
    }
  }
  if (clause.by.text == words[1]) attention.normalize = ir::Normalize::sigmoid;
  attention.normalize_pos = place(sink, clause.by.span);
}

// `f / sum(g)`.
struct WrittenQuotient {
  const ast::Expr& numerator;
  const ast::Expr& denominator;
  support::Span sum;  // the name
};
std::optional<WrittenQuotient> quotient_of(const ast::Expr& weight) {
  if (weight.kind != ast::ExprKind::binary || weight.operators[0] != ast::Operator::div) return {};
  const ast::Expr& sum = weight.operands[1];
  if (sum.kind != ast::ExprKind::call || sum.text != "sum" || sum.operands.size() != 1) return {};
  return WrittenQuotient{weight.operands[0], sum.operands[0], sum.head};
}

// What rows have of the statistics of softmax: none, or only the logarithm of a sum.
struct RowStatistics {
  std::string by;  // the clause that makes weights
  bool has_lse = false;
  std::string_view why_no_sink;
  std::string help_for_sink;
  std::string_view help_for_outputs;
};

RowStatistics statistics_of(const ir::Attention& attention, std::string_view clause) {
  const std::string by = quoted(clause);
  if (attention.quotient) {
    return {by, true, "divides by a sum of its own, without a sink",
            "add the term to the sum, or remove the sink",
            "of the statistics there is `lse`, the logarithm of the sum"};
  }
  return {by, false, "has no sink: each weight depends on its own score alone",
          fmt::format("remove the sink, or {}", by), "the only output is `o`"};
}

// Reports the clause if it needs a statistic that rows do not have.
void check_statistics(const ast::Clause& clause, const RowStatistics& rows, diag::Sink& sink) {
  if (std::holds_alternative<ast::SinkClause>(clause.body)) {
    sink.report(Code::not_available_here, clause.keyword.span,
                fmt::format("{} {}", rows.by, rows.why_no_sink))
        .help = rows.help_for_sink;
  }
  const auto report = [&](const ast::Name& name) -> std::string& {
    return sink
        .report(Code::not_available_here, name.span,
                fmt::format("{} is a statistic of softmax, and there is none beside {}",
                            quoted(name.text), rows.by))
        .help;
  };
  if (const auto* gradients = std::get_if<ast::GradClause>(&clause.body)) {
    for (const ast::Name& name : gradients->tensors) {
      if (name.text == "lse" && !rows.has_lse)
        report(name) = "leave it out: `o` is the only output, and the only one with a gradient";
    }
  }
  const auto* outputs = std::get_if<ast::OutputsClause>(&clause.body);
  if (outputs == nullptr) return;
  for (const ast::Name& name : outputs->outputs) {
    const auto* output = std::ranges::find(ir::kOutputs, name.text, &ir::Output::name);
    const bool is_there = ir::is_o(name.text) || (name.text == "lse" && rows.has_lse);
    if (output != std::end(ir::kOutputs) && !is_there) report(name) = rows.help_for_outputs;
  }
}

// Whether a real is greater than -inf wherever the product of q and k is finite, by the form of
// the expression alone.
class Finite {
 public:
  explicit Finite(const ir::Dag& dag) : dag_(dag) {}

  bool of(ExprId root) const {
    const ExprId roots[] = {root};
    return std::ranges::all_of(ir::reachable(dag_, roots),
                               [&](ExprId id) { return keeps_finite(dag_[id]); });
  }

 private:
  bool keeps_finite(const ir::Node& node) const {
    if (node.type != Type::real) return true;
    switch (node.op) {
      case Op::const_real_: return std::isfinite(std::get<double>(node.attribute));
      case Op::div_: return is_number(node.operands[1]);
      case Op::score_:
      case Op::to_real_:
      case Op::add_:
      case Op::sub_:
      case Op::mul_:
      case Op::neg_:
      case Op::abs_:
      case Op::min_:
      case Op::max_:
      case Op::floor_:
      case Op::ceil_:
      case Op::select_:
      case Op::tanh_:
      case Op::sigmoid_:
      case Op::erf_:
      case Op::sin_:
      case Op::cos_: return true;
      default: return false;  // logarithms, tensors, params
    }
  }

  bool is_number(ExprId id) const { return dag_[id].is(Op::const_real_) && dag_.real_of(id) != 0; }

  const ir::Dag& dag_;
};

// The weight of a key whose score is not -inf: such a score hides the key, whatever the function.
// Constant factors stay outside, where kernels find them.
ExprId visible_alone(ExprId weight, ExprId score, ir::Dag& dag, ir::SourcePos pos) {
  if (Finite(dag).of(score)) return weight;
  const ir::Node node = dag[weight];  // a copy: nodes are added
  const auto is_number = [&](std::size_t i) {
    return ir::fold_real(dag, node.operands[i]).has_value();
  };
  const bool is_product = node.is(Op::mul_), is_quotient = node.is(Op::div_);
  if ((is_product || is_quotient) && is_number(1)) {
    const ExprId shown = visible_alone(node.operands[0], score, dag, pos);
    return dag.add(node.op, {shown, node.operands[1]}, node.pos);
  }
  if (is_product && is_number(0)) {
    const ExprId shown = visible_alone(node.operands[1], score, dag, pos);
    return dag.add(node.op, {node.operands[0], shown}, node.pos);
  }
  const ExprId least = dag.real(-std::numeric_limits<double>::infinity(), pos);
  return dag.add(Op::select_, {dag.add(Op::eq_, {score, least}, pos), dag.real(0, pos), weight},
                 pos);
}

// The argument of what makes weights, which is -inf too where the score hides the key.
ExprId hidden_alike(ExprId argument, ExprId score, ir::Dag& dag, ir::SourcePos pos) {
  if (argument == score || Finite(dag).of(score)) return argument;
  const ExprId least = dag.real(-std::numeric_limits<double>::infinity(), pos);
  return dag.add(Op::select_, {dag.add(Op::eq_, {score, least}, pos), least, argument}, pos);
}

// A function of each score is a part of the score, except that engines know sigmoid.
void set_pointwise(ExprId weight, ir::Attention& attention) {
  ir::Dag& dag = attention.dag;
  const ir::SourcePos pos = attention.normalize_pos;
  if (dag[weight].is(Op::sigmoid_)) {
    attention.normalize = ir::Normalize::sigmoid;
    attention.score = hidden_alike(dag[weight].operands[0], attention.score, dag, pos);
    return;
  }
  attention.normalize = ir::Normalize::linear;
  attention.score = visible_alone(weight, attention.score, dag, pos);
}

void set_quotient(const WrittenQuotient& written, ir::Attention& attention, Scope& scope,
                  diag::Sink& sink) {
  if (scope.has_function("sum")) {
    sink.report(Code::reserved_name, written.sum,
                "`sum` is the sum along the row here, and a function of this name is defined too")
        .help = "give the function another name";
    return;
  }
  const auto checked = [&](const ast::Expr& expr) {
    return scope.check_as(expr, kWeightSite, Type::real, "a condition belongs in a `mask` clause");
  };
  const auto numerator = checked(written.numerator), denominator = checked(written.denominator);
  if (!numerator || !denominator) return;
  NoQuotient no;
  const auto found = find_quotient(attention, attention.score, numerator->id, denominator->id, no);
  if (!found) {
    const ast::Expr& at = no.of_denominator ? written.denominator : written.numerator;
    sink.report(Code::bad_weight, at.span, std::move(no.why)).help = std::move(no.help);
    return;
  }
  attention.score =
      hidden_alike(found->score, attention.score, attention.dag, attention.normalize_pos);
  const ir::ExprId term = attention.dag.leaf(Op::score_);
  const ir::Quotient& quotient = found->quotient;
  if (quotient.exponential && quotient.f == term && quotient.g == term) return;
  attention.normalize = ir::Normalize::quotient;
  attention.quotient = quotient;
}

void make_weights(const ast::Clause& clause, ir::Attention& attention, Scope& scope,
                  diag::Sink& sink) {
  scope.begin_clause(clause.span);
  const ast::Expr& weight = std::get<ast::WeightClause>(clause.body).value;
  if (const auto quotient = quotient_of(weight)) {
    return set_quotient(*quotient, attention, scope, sink);
  }
  const auto value =
      scope.check_as(weight, kWeightSite, Type::real, "a condition belongs in a `mask` clause");
  if (value) set_pointwise(value->id, attention);
}

}  // namespace

WeightClauses find_weights(const ast::Spec& spec) {
  WeightClauses found;
  for (const ast::Clause& clause : spec.clauses) {
    if (std::holds_alternative<ast::NormalizeClause>(clause.body)) found.normalize = &clause;
    if (std::holds_alternative<ast::WeightClause>(clause.body)) found.weight = &clause;
  }
  return found;
}

void begin_weights(const ast::Spec& spec, ir::Attention& attention, diag::Sink& sink) {
  const auto [normalize, weight] = find_weights(spec);
  for (const ast::Clause& clause : spec.clauses) {
    const auto* one = std::get_if<ast::NormalizeClause>(&clause.body);
    if (one != nullptr) set_normalize(*one, attention, sink);
  }
  if (weight != nullptr) {
    if (!quotient_of(std::get<ast::WeightClause>(weight->body).value))
      attention.normalize = ir::Normalize::linear;
    attention.normalize_pos = place(sink, weight->keyword.span);
  }
  if (normalize != nullptr && weight != nullptr) {
    auto& diagnostic = sink.report(Code::duplicate_clause, weight->keyword.span,
                                   "`weight` and `normalize` both make weights of scores");
    diagnostic.labels.push_back({normalize->keyword.span, "the other one"});
    diagnostic.help = "remove one of them; `normalize sigmoid;` is `weight sigmoid(score);`";
  }
}

void finish_weights(const ast::Spec& spec, ir::Attention& attention, Scope& scope,
                    diag::Sink& sink) {
  attention.score = scope.score().id;
  const ast::Clause* clause = find_weights(spec).weight;
  if (clause != nullptr) make_weights(*clause, attention, scope, sink);
  if (attention.is_softmax()) return;
  const RowStatistics rows =
      statistics_of(attention, clause != nullptr ? "weight" : "normalize sigmoid");
  for (const ast::Clause& one : spec.clauses) check_statistics(one, rows, sink);
}

}  // namespace attn::sema
