#include "compiler/sema/scope.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

#include "compiler/ast/print.h"
#include "compiler/sema/names.h"
#include "compiler/sema/sums.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using ast::Expr;
using ast::ExprKind;
using diag::Code;
using ir::Op;
using ir::Type;
using support::quoted;
using support::Span;

// Limits of an expression after its lets and earlier scores are expanded.
constexpr std::uint32_t kMaxDepth = 2000;
constexpr std::uint64_t kMaxSize = 100'000;

std::string_view kind_in_words(Symbol::Kind kind) {
  switch (kind) {
    case Symbol::Kind::parameter: return "spec parameter";
    case Symbol::Kind::tensor: return "tensor";
    case Symbol::Kind::param: return "param";
    case Symbol::Kind::function: return "function";
    case Symbol::Kind::branch: return "branch";
    default: return "let";
  }
}

// What would do for an expression that reads what a site does not have.
std::string_view help_without(unsigned missing, const Site& site) {
  if ((missing & kBranch) != 0)
    return "a branch has a value for each element of `o`: it stands in a `combine` clause";
  if ((missing & kResult) != 0 && (site.allowed & kBranch) != 0)
    return "name the branch whose `o` it is";
  if ((missing & kResult) != 0)
    return "`o` is an element of the result: it stands in an `epilogue` or `gate` clause";
  if ((missing & kColumn) != 0)
    return "`d_idx` is the column of an element: it stands in a `prologue`, `epilogue` or `gate` "
           "clause";
  return site.help;
}

}  // namespace

Scope::Scope(Environment& environment, const Library& library, ir::Attention& attention,
             diag::Sink& sink)
    : environment_(environment),
      library_(library),
      attention_(attention),
      sink_(sink),
      operations_(attention.dag, sink),
      score_(operations_.leaf(attention.dag.leaf(Op::score_), kScore)),
      output_(operations_.leaf(attention.dag.leaf(Op::output_), kResult)) {}

diag::Diagnostic& Scope::report(Code code, Span span, std::string message) {
  return sink_.report(code, span, std::move(message));
}

void Scope::declare(const ast::Name& name, Symbol symbol, bool at_run_time) {
  const bool taken = is_bound_name(name.text) || is_dimension_name(name.text);
  if (taken || (at_run_time && contains(run_time_names(), name.text))) {
    report(Code::reserved_name, name.span, fmt::format("{} is a reserved name", quoted(name.text)))
        .help = "choose another name";
    return;
  }
  symbol.span = name.span;
  const auto [found, added] = symbols_.try_emplace(name.text, symbol);
  if (added) return;
  found->second.kind = Symbol::Kind::poisoned;  // ambiguous
  report(Code::duplicate_name, name.span, fmt::format("{} is defined twice", quoted(name.text)))
      .labels.push_back({found->second.span, "first here"});
}

void Scope::poison(const std::string& name) {
  symbols_.try_emplace(name, Symbol{.kind = Symbol::Kind::poisoned, .used = true});
}

void Scope::define_let(const ast::Name& name, const std::optional<Value>& value) {
  const auto found = symbols_.find(name.text);
  if (found == symbols_.end() || found->second.span != name.span) return;  // reported
  found->second.value = value;
  if (!value) found->second.kind = Symbol::Kind::poisoned;
}

std::optional<Value> Scope::check(const Expr& expr, const Site& site) {
  const std::optional<Value> value = bare(expr, site);
  if (value && !bounded(expr, *value)) return std::nullopt;
  if (value && spans_ != nullptr && frames_.empty()) record(expr, value->id);
  return value;
}

// Records each span once, also if a reduction checks it repeatedly.
void Scope::record(const Expr& expr, ir::ExprId id) {
  if (expr.kind == ExprKind::name && !attention_.dag[id].operands.empty()) return;
  std::vector<support::Span>& places = (*spans_)[id];
  const auto at = std::ranges::lower_bound(places, expr.span.begin, {}, &support::Span::begin);
  if (at == places.end() || at->begin != expr.span.begin) places.insert(at, expr.span);
}

std::optional<Value> Scope::check_as(const Expr& expr, const Site& site, Type type,
                                     std::string_view help) {
  root_ = &expr;
  wants_condition_ = type == Type::boolean;
  const std::optional<Value> value = check(expr, site);
  if (!value || value->type == type) return value;
  if (type == Type::real && ir::is_integral(value->type)) return operations_.to_real(*value);
  has_type(expr, *value, type, site, help);
  return std::nullopt;
}

bool Scope::has_type(const Expr& expr, const Value& value, Type type, const Site& site,
                     std::string_view help) {
  if (value.type == type) return true;
  report(Code::type_mismatch, expr.span,
         fmt::format("{} must be {}, found {}", site.what, in_words(type), in_words(value.type)))
      .help = help;
  return false;
}

std::optional<Value> Scope::bare(const Expr& expr, const Site& site) {
  if (!within_work(expr)) return std::nullopt;
  switch (expr.kind) {
    case ExprKind::number: return number(expr);
    case ExprKind::boolean:
      return operations_.leaf(
          attention_.dag.boolean(expr.text == "true", operations_.place(expr.span)), kConstants);
    case ExprKind::name: return name(expr, site);
    case ExprKind::index: return index(expr, site);
    case ExprKind::reduce: return reduction(expr, site);
    default: return operation(expr, site);
  }
}

bool Scope::bounded(const Expr& expr, const Value& value) {
  return bounded(expr, value.depth <= kMaxDepth ? value.size : kMaxSize + 1);
}

bool Scope::bounded(const Expr& expr, std::uint64_t size) {
  if (size <= kMaxSize) return true;
  report(Code::too_deep, expr.head,
         "the expression is too large after its lets and the earlier scores are expanded");
  return false;
}

std::optional<Value> Scope::number(const Expr& expr) {
  const auto number = ast::parse_number(expr.text);
  if (number) return constant(expr, Known::of(*number));
  auto& diagnostic =
      report(Code::bad_number, expr.span, fmt::format("{} is out of range", quoted(expr.text)));
  if (ast::parse_number(expr.text, true)) {
    diagnostic.help = fmt::format("`long(-{})` is the least integer of 64 bits", expr.text);
  }
  return std::nullopt;
}

std::optional<Value> Scope::constant(const Expr& expr, const Known& known) {
  if (known.state != Known::State::value) return std::nullopt;
  const ir::SourcePos pos = operations_.place(expr.span);
  if (const auto* real = std::get_if<double>(&known.number)) {
    return operations_.leaf(attention_.dag.real(*real, pos), kConstants);
  }
  const std::int64_t value = std::get<std::int64_t>(known.number);
  if (value >= -kLargest && value <= kLargest) {
    return operations_.leaf(attention_.dag.integer(value, pos), kConstants);
  }
  report(Code::bad_number, expr.span, fmt::format("{} does not fit in 32 bits", quoted(expr.text)))
      .help = fmt::format("`long({0})` has 64 bits, `{0}.0` is a real", value);
  return std::nullopt;
}

// A literal, with or without a sign, beyond 32 bits in `long(..)`.
std::optional<Value> Scope::wide_literal(const Expr& expr) {
  if (expr.kind != ExprKind::call || expr.text != "long" || expr.operands.size() != 1) return {};
  const Expr& given = expr.operands[0];
  const bool negates = given.kind == ExprKind::unary && given.operators[0] == ast::Operator::negate;
  const Expr& literal = negates ? given.operands[0] : given;
  if (literal.kind != ExprKind::number) return std::nullopt;
  const auto number = ast::parse_number(literal.text, negates);
  const auto* value = number ? std::get_if<std::int64_t>(&*number) : nullptr;
  if (!value || (*value >= -kLargest && *value <= kLargest)) return std::nullopt;
  return operations_.leaf(attention_.dag.wide(*value, operations_.place(expr.span)), kConstants);
}

std::optional<Value> Scope::name(const Expr& expr, const Site& site) {
  std::optional<Value> value;
  const auto found = sees_spec() ? symbols_.find(expr.text) : symbols_.end();
  if (const Local* local = find_local(expr.text)) {
    value = local_value(expr, *local);
  } else if (is_bound_name(expr.text)) {
    value = bound(expr);
  } else if (is_dimension_name(expr.text)) {
    value = dimension(expr);
  } else if (is_element(expr)) {
    report(Code::tensor_without_index, expr.span, "`x` is a row, not a number").help =
        "read an element, for example `x[d_idx]`";
  } else if (found != symbols_.end()) {
    found->second.used = true;
    value = symbol(expr, found->second);
  } else {
    unknown(expr);
  }
  if (!value || !available(expr, *value, site)) return std::nullopt;
  return value;
}

bool Scope::available(const Expr& expr, const Value& value, const Site& site) {
  const int missing = value.uses & ~site.allowed;
  if (missing == 0) return true;
  if ((missing & kSums) != 0) {
    report(Code::not_available_here, expr.head,
           fmt::format("{} is summed along keys, and cannot be used in {}", quoted(expr.text),
                       site.what))
        .help = "only scores and weights read sums along keys";
    return false;
  }
  if (missing == kLearned) {
    no_gradient(expr.head, fmt::format("{} depends on a learned tensor, but {} has no gradient",
                                       quoted(expr.text), site.what));
    return false;
  }
  const auto found = symbols_.find(expr.text);
  const bool is_let = found != symbols_.end() && found->second.kind == Symbol::Kind::let;
  const std::string_view what = (missing & kScore) != 0                 ? "the score"
                                : (missing & (kResult | kBranch)) != 0  ? "an element of the result"
                                : (missing & (kElement | kColumn)) != 0 ? "a column of a row"
                                : (missing & kIndexes & ~kHeads) != 0   ? "a query or key index"
                                : (missing & kHeads) != 0               ? "an index"
                                : (missing & kTensors) != 0             ? "a tensor"
                                                                        : "a param";
  auto& diagnostic =
      report(Code::not_available_here, expr.head,
             is_let ? fmt::format("{} depends on {}, which cannot be used in {}", quoted(expr.text),
                                  what, site.what)
                    : fmt::format("{} cannot be used in {}", quoted(expr.text), site.what));
  if (is_let) diagnostic.labels.push_back({found->second.span, "defined here"});
  diagnostic.help = ast::hint_for(sink_.source(), help_without(missing, site));
  return false;
}

void Scope::no_gradient(Span span, std::string what) {
  report(Code::no_gradient, span, std::move(what)).help =
      "declare it with `tensor` instead of `learn` if it is not learned";
}

std::optional<Value> Scope::bound(const Expr& expr) {
  ir::Dag& dag = attention_.dag;
  const ir::SourcePos pos = operations_.place(expr.span);
  const std::string& name = expr.text;
  if (name == "score") return score_;
  if (name == "o") return output_;
  if (name == "inf") {
    return operations_.leaf(dag.real(std::numeric_limits<double>::infinity(), pos), kConstants);
  }
  if (name == "q_idx") return query_index(pos);
  const Op op = name == "b"        ? Op::batch_
                : name == "h"      ? Op::head_
                : name == "kv_idx" ? Op::column_
                                   : Op::row_;
  if (name == "d_idx") return operations_.leaf(dag.leaf(Op::depth_, pos), kColumn);
  const bool heads = op == Op::batch_ || op == Op::head_;
  return operations_.leaf(dag.leaf(op, pos), heads ? kHeads : op == Op::column_ ? kKeys : kRows);
}

std::optional<Value> Scope::query_index(ir::SourcePos pos) {
  ir::Dag& dag = attention_.dag;
  const Value row = operations_.leaf(dag.leaf(Op::row_, pos), kRows);
  if (attention_.align == ir::Align::top_left) return row;
  if (attention_.lengths_q || attention_.lengths_kv) {
    const Value skv = length(ir::Dim::Skv, attention_.lengths_kv, ir::kLengthsKv, pos);
    const Value sq = length(ir::Dim::Sq, attention_.lengths_q, ir::kLengthsQ, pos);
    return operations_.build(Op::add_, {row, operations_.build(Op::sub_, {skv, sq})});
  }
  const auto sq = attention_.dims.get(ir::Dim::Sq);
  const auto skv = attention_.dims.get(ir::Dim::Skv);
  if (sq && skv) {
    if (*sq == *skv) return row;
    return operations_.build(Op::add_,
                             {row, operations_.leaf(dag.integer(*skv - *sq, pos), kConstants)});
  }
  const Value shift =
      operations_.build(Op::sub_, {size(ir::Dim::Skv, pos), size(ir::Dim::Sq, pos)});
  return operations_.build(Op::add_, {row, shift});
}

Value Scope::size(ir::Dim dim, ir::SourcePos pos) {
  ir::Dag& dag = attention_.dag;
  const auto known = attention_.dims.get(dim);
  return operations_.leaf(
      known ? dag.integer(*known, pos) : dag.dim(std::string(to_string(dim)), pos), kConstants);
}

// The length of the current batch entry if this side has lengths, else the size.
Value Scope::length(ir::Dim dim, bool given, std::string_view tensor, ir::SourcePos pos) {
  if (!given) return size(dim, pos);
  ir::Dag& dag = attention_.dag;
  const ir::ExprId batch[] = {dag.leaf(Op::batch_, pos)};
  return operations_.leaf(dag.add_symbol(Op::load_, std::string(tensor), Type::integer, batch, pos),
                          kHeads | kTensors);
}

std::optional<Value> Scope::dimension(const Expr& expr) {
  const auto dim = expr.text == "D" ? environment_.head_dim : ir::parse_dim(expr.text);
  if (!dim) {
    auto& diagnostic =
        report(Code::not_available_here, expr.span, "`D` is ambiguous: Dqk and Dv differ");
    diagnostic.help = "write `Dqk` or `Dv`";
    for (const ir::Dim one : {ir::Dim::Dqk, ir::Dim::Dv}) {
      diagnostic.add_replacement(expr.head, to_string(one));
    }
    return std::nullopt;
  }
  if (const auto size = attention_.dims.get(*dim)) return constant(expr, Known::of(*size));
  return operations_.leaf(
      attention_.dag.dim(std::string(to_string(*dim)), operations_.place(expr.span)), kConstants);
}

std::optional<Value> Scope::symbol(const Expr& expr, Symbol& symbol) {
  switch (symbol.kind) {
    case Symbol::Kind::poisoned: return std::nullopt;
    case Symbol::Kind::parameter:
      return constant(expr, environment_.parameters.find(expr.text)->second);
    case Symbol::Kind::param:
      return operations_.leaf(
          attention_.dag.add_symbol(Op::param_, expr.text, ir::value_type(symbol.dtype), {},
                                    operations_.place(expr.span)),
          kParams);
    case Symbol::Kind::tensor: {
      auto& diagnostic = report(Code::tensor_without_index, expr.span,
                                fmt::format("{} is a tensor, not a number", quoted(expr.text)));
      diagnostic.labels.push_back({symbol.span, "declared here"});
      diagnostic.help =
          fmt::format("read an element, for example `{}`", attention_.find_sum(expr.text) != nullptr
                                                               ? expr.text + "[kv_idx]"
                                                               : example_of(expr.text, symbol));
      return std::nullopt;
    }
    case Symbol::Kind::function: not_a_value(expr, *symbol.function); return std::nullopt;
    case Symbol::Kind::branch: return branch(expr);
    case Symbol::Kind::let: break;
  }
  if (symbol.value) return symbol.value;
  report(Code::used_before_definition, expr.span,
         fmt::format("{} is used before it is defined", quoted(expr.text)))
      .labels.push_back({symbol.span, "defined here"});
  return std::nullopt;
}

std::optional<std::string> Scope::tensor_named(const Expr& expr) {
  if (const Local* local = find_local(expr.text)) {
    if (local->kind == Local::Kind::tensor) return local->tensor;
    if (local->kind == Local::Kind::value) {
      report(Code::index_of_scalar, expr.span,
             fmt::format("{} is a number here, not a tensor", quoted(expr.text)));
    }
    return std::nullopt;
  }
  const auto found = sees_spec() ? symbols_.find(expr.text) : symbols_.end();
  if (found == symbols_.end()) {
    if (is_bound_name(expr.text) || is_dimension_name(expr.text)) {
      report(Code::index_of_scalar, expr.span,
             fmt::format("{} is a number, not a tensor", quoted(expr.text)));
    } else {
      unknown(expr);
    }
    return std::nullopt;
  }
  Symbol& symbol = found->second;
  symbol.used = true;
  if (symbol.kind == Symbol::Kind::tensor) return expr.text;
  if (symbol.sums && symbol.kind == Symbol::Kind::let) {
    report(Code::used_before_definition, expr.span,
           fmt::format("{} is used before it is defined", quoted(expr.text)))
        .labels.push_back({symbol.span, "defined here"});
    return std::nullopt;
  }
  if (symbol.kind != Symbol::Kind::poisoned) {
    report(Code::index_of_scalar, expr.span,
           fmt::format("{} is a {}, not a tensor", quoted(expr.text), kind_in_words(symbol.kind)))
        .labels.push_back({symbol.span, "defined here"});
  }
  return std::nullopt;
}

std::optional<Value> Scope::operation(const Expr& expr, const Site& site) {
  if (expr.kind == ExprKind::call) {
    if (const auto callee = find_function(expr.text)) return call(expr, *callee, site);
    if (const auto literal = wide_literal(expr)) return literal;
    if (!row_of_.empty() && expr.text == "sum" && expr.operands.size() == 1)
      return row_sum(expr, site);
    if (is_sum(expr)) {
      if (frames_.empty()) report_sum_inside(expr, sink_);  // a function's was reported
      return std::nullopt;
    }
  }
  const auto names = function_names();
  const bool known = expr.kind != ExprKind::call || contains(names, expr.text);
  if (!known) {  // it may take tensors and functions; still report other errors in its arguments
    unknown_function(expr);
    for (const Expr& operand : expr.operands) {
      const bool is_tensor = contains(input_names(), operand.text);  // `matmul(q, k)`
      if (!is_tensor && !is_function_name(operand)) (void)argument({}, operand, site);
    }
    return std::nullopt;
  }
  std::vector<Value> operands;
  const bool compares = expr.kind == ExprKind::compare;
  const Expr* outer = compares ? operations_.set_comparison(&expr) : nullptr;
  for (const Expr& operand : expr.operands) {
    if (const auto value = check(operand, site)) operands.push_back(*value);
  }
  if (compares) operations_.set_comparison(outer);
  if (operands.size() != expr.operands.size()) return std::nullopt;
  if (compares) warn_of_bits(expr);
  return operations_.apply(expr, operands);
}

namespace {

std::vector<diag::Edit> in_parentheses(Span span) {
  return {{{span.begin, span.begin}, "("}, {{span.end, span.end}, ")"}};
}

}  // namespace

namespace {

// Help for a sign that has no logical form, between two comparisons.
std::string compared_apart(const Expr& expr, std::string_view sign) {
  if (expr.operands.size() != 3) return with_parentheses(sign);
  const Expr& middle = expr.operands[1];
  return fmt::format("write `({} {} {}) {} ({} {} {})`", ast::to_dsl(expr.operands[0]),
                     ast::spelling(expr.operators[0]), ast::to_dsl(middle.operands[0]), sign,
                     ast::to_dsl(middle.operands[1]), ast::spelling(expr.operators[1]),
                     ast::to_dsl(expr.operands[2]));
}

}  // namespace

// `a >= b & c < d` is a chain of comparisons around `b & c`.
void Scope::warn_of_bits(const Expr& expr) {
  const auto is_bits = [](const Expr& operand) {
    return operand.kind == ExprKind::binary && !operand.grouped &&
           ast::precedence(operand.operators[0]) >= ast::precedence(ast::Operator::bit_or) &&
           ast::precedence(operand.operators[0]) <= ast::precedence(ast::Operator::bit_and);
  };
  const auto inner = std::span(expr.operands).subspan(1, expr.operands.size() - 2);
  const auto found = std::ranges::find_if(inner, is_bits);
  if (found == inner.end()) return;
  const std::string_view sign = ast::spelling(found->operators[0]);
  auto& diagnostic =
      report(Code::bits_in_comparison, found->span,
             fmt::format("{} binds tighter than the comparisons around it", quoted(sign)));
  Logical logical = with_logical_signs(expr, sink_);
  const std::string instead =
      logical.text.empty() ? compared_apart(expr, sign) : fmt::format("write `{}`", logical.text);
  diagnostic.help = instead + "; if this is intended, put it in parentheses";
  if (!is_dsl(expr)) return;
  if (!logical.text.empty()) diagnostic.fixes.push_back({instead, std::move(logical.edits)});
  if (logical.text.empty() && expr.operands.size() == 3) {
    const Span left{expr.operands[0].span.begin, found->operands[0].span.end};
    const Span right{found->operands[1].span.begin, expr.operands[2].span.end};
    diagnostic.fixes.push_back({"put the comparisons in parentheses", in_parentheses(left)});
    std::ranges::copy(in_parentheses(right), std::back_inserter(diagnostic.fixes.back().edits));
  }
  diagnostic.fixes.push_back(
      {fmt::format("put {} and its operands in parentheses", quoted(sign)), {}});
  for (const Expr& operand : inner) {
    if (!is_bits(operand)) continue;
    std::ranges::copy(in_parentheses(operand.span),
                      std::back_inserter(diagnostic.fixes.back().edits));
  }
}

bool Scope::is_dsl(const Expr& expr) const { return !sink_.locate(expr.span).source->is_json(); }

void Scope::rewrite(const Expr& expr, std::string_view text, diag::Diagnostic& diagnostic) const {
  if (!is_dsl(expr)) return;
  const diag::Location place = sink_.locate(expr.span);
  const std::string_view before = place.source->text().substr(0, place.span.begin);
  Span span = expr.span;  // with the module, which the grammar skips
  for (const std::string_view module : {"torch.", "math."}) {
    if (before.ends_with(module)) span.begin -= static_cast<std::uint32_t>(module.size());
  }
  diagnostic.add_replacement(span, text);
}

void Scope::warn_unused(std::set<std::string, std::less<>>& elsewhere, bool collects) const {
  if (collects) {
    for (const auto& [name, symbol] : symbols_) {
      if (symbol.used || environment_.used.contains(name)) elsewhere.insert(name);
    }
    return;
  }
  for (const auto& [name, symbol] : symbols_) {
    if (symbol.kind == Symbol::Kind::branch && !symbol.used) {
      sink_
          .report(Code::not_available_here, symbol.span,
                  fmt::format("branch {} is not read", quoted(name)))
          .help = "read it in `combine`, or leave it out";
      continue;
    }
    const bool used = symbol.used || elsewhere.contains(name) || environment_.used.contains(name) ||
                      name.starts_with('_') || name == ir::kLengthsQ || name == ir::kLengthsKv;
    if (used || symbol.kind == Symbol::Kind::poisoned) continue;
    auto& diagnostic =
        sink_.report(Code::unused_name, symbol.span,
                     fmt::format("{} {} is never used", kind_in_words(symbol.kind), quoted(name)));
    diagnostic.help = "remove it, or start its name with `_`";
    diagnostic.add_replacement(symbol.span, "_" + name);
  }
}

}  // namespace attn::sema
