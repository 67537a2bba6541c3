// Expands functions and reductions where they are used, and reads elements of tensors.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/sema/names.h"
#include "compiler/sema/scope.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using ast::Expr;
using ast::ExprKind;
using diag::Code;
using ir::Op;
using ir::Type;
using support::quoted;

constexpr std::size_t kMaxFrames = 64;
constexpr std::int64_t kMaxRange = 4096;
// Maximum number of expressions visited in one spec: functions and reductions multiply them.
constexpr std::uint64_t kMaxWork = 1'000'000;
constexpr std::string_view kReductions[] = {"any", "all", "sum", "min", "max"};

}  // namespace

bool Scope::within_work(const Expr& expr) {
  is_stopped_ = most_work_ && work_ >= *most_work_;
  if (is_stopped_) return false;
  sink_.add_work(1);
  if (++work_ == kMaxWork) {
    report(Code::too_deep, expr.head,
           fmt::format("the spec has more than {} operations after its functions and reductions "
                       "are expanded",
                       kMaxWork));
  }
  return work_ < kMaxWork;
}

const Scope::Local* Scope::find_local(const std::string& name) const {
  const std::size_t first = frames_.empty() ? 0 : frames_.back().locals;
  for (std::size_t i = locals_.size(); i-- > first;) {
    if (locals_[i].name == name) return &locals_[i];
  }
  return nullptr;
}

std::optional<Value> Scope::local_value(const Expr& expr, const Local& local) {
  if (local.kind == Local::Kind::value) return local.value;
  if (local.kind == Local::Kind::tensor) {
    report(Code::tensor_without_index, expr.span,
           fmt::format("{} is a tensor here, not a number", quoted(expr.text)))
        .help = fmt::format("read an element, for example `{}[b]`", expr.text);
  }
  return std::nullopt;
}

std::optional<Scope::Callee> Scope::find_function(const std::string& name) {
  const bool in_library = !frames_.empty() && frames_.back().sees == Frame::Sees::library;
  const auto found = in_library ? symbols_.end() : symbols_.find(name);
  if (found != symbols_.end() && found->second.kind == Symbol::Kind::function &&
      (sees_spec() || !found->second.inside)) {
    found->second.used = true;
    const auto sees = found->second.inside ? Frame::Sees::spec : Frame::Sees::file;
    return Callee{found->second.function, sees};
  }
  const auto imported = library_.functions.find(name);
  if (imported == library_.functions.end()) return std::nullopt;
  return Callee{imported->second, Frame::Sees::library};
}

bool Scope::has_function(const std::string& name) const {
  const auto found = symbols_.find(name);
  return (found != symbols_.end() && found->second.kind == Symbol::Kind::function) ||
         library_.functions.contains(name);
}

bool Scope::can_call(const Expr& expr, const ast::FunctionClause& function) {
  const std::size_t wanted = function.parameters.size();
  if (expr.operands.size() != wanted) {
    auto& diagnostic =
        report(Code::wrong_argument_count, expr.span,
               fmt::format("{} takes {}, found {}", quoted(expr.text),
                           support::count_of(wanted, "argument"), expr.operands.size()));
    diagnostic.labels.push_back({function.name.span, "defined here"});
    diagnostic.help = fmt::format("write `{}`", call_of(function));
    if (has_usual_arguments(function)) rewrite(expr, call_of(function), diagnostic);
    return false;
  }
  const bool calls_itself =
      std::ranges::any_of(frames_, [&](const Frame& frame) { return frame.function == &function; });
  if (calls_itself) {
    report(Code::recursion, expr.head, fmt::format("{} calls itself", quoted(expr.text))).help =
        "functions are expanded where they are called; use `any(j in 0..8: ...)` for repetition";
    return false;
  }
  if (frames_.size() < kMaxFrames) return true;
  report(Code::too_deep, expr.head,
         fmt::format("function calls are nested more than {} deep", kMaxFrames));
  return false;
}

std::optional<Value> Scope::call(const Expr& expr, const Callee& callee, const Site& site) {
  std::vector<Local> arguments;
  const bool counts_fit = expr.operands.size() == callee.function->parameters.size();
  for (std::size_t i = 0; i < expr.operands.size() && counts_fit; ++i) {
    arguments.push_back(argument(callee.function->parameters[i], expr.operands[i], site));
  }
  if (!can_call(expr, *callee.function)) return std::nullopt;
  const auto poisoned = [](const Local& local) { return local.kind == Local::Kind::poisoned; };
  if (std::ranges::any_of(arguments, poisoned)) return std::nullopt;
  if (frames_.empty()) operations_.set_outermost_call(expr.head);
  const diag::Sink::Context context(sink_, {expr.head, "called here"});
  return inlined(callee, std::move(arguments), site);
}

std::optional<Value> Scope::inlined(const Callee& callee, std::vector<Local> arguments,
                                    const Site& site) {
  const std::size_t outside = locals_.size();
  frames_.push_back({callee.function, callee.sees, outside});
  for (Local& one : arguments) locals_.push_back(std::move(one));
  for (const ast::LetClause& let : callee.function->lets) {
    const std::optional<Value> value = check(let.value, site);
    locals_.push_back({let.name.text,
                       value ? Local::Kind::value : Local::Kind::poisoned,
                       value.value_or(Value{}),
                       {}});
  }
  const std::optional<Value> result = check(callee.function->value, site);
  frames_.pop_back();
  locals_.resize(outside);
  return result;
}

// A tensor is passed by name, anything else by value.
Scope::Local Scope::argument(const ast::Name& parameter, const Expr& expr, const Site& site) {
  Local result{parameter.text};
  if (expr.kind == ExprKind::name) {
    const Local* local = find_local(expr.text);
    const auto symbol = sees_spec() ? symbols_.find(expr.text) : symbols_.end();
    const bool captured =
        !local && symbol != symbols_.end() && symbol->second.kind == Symbol::Kind::tensor;
    if (captured) symbol->second.used = true;
    if (captured || (local && local->kind == Local::Kind::tensor)) {
      result.kind = Local::Kind::tensor;
      result.tensor = captured ? expr.text : local->tensor;
      return result;
    }
  }
  if (const std::optional<Value> value = check(expr, site)) {
    result.kind = Local::Kind::value;
    result.value = *value;
  }
  return result;
}

std::optional<std::int64_t> Scope::reduction_bound(const Expr& expr, const Site& site) {
  const std::optional<Value> value = check(expr, site);
  if (!value) return std::nullopt;
  const auto known = ir::fold_integer(attention_.dag, value->id);
  if (known) return known;
  const bool open = value->uses == kConstants && value->type == ir::Type::integer;
  auto& diagnostic = report(open ? Code::size_needed : Code::bad_operand, expr.span,
                            open ? "this bound depends on a dimension that has no size"
                                 : "the bounds of a reduction must be integer constants");
  diagnostic.help = open ? "give the dimension a size, or compile with `--bind`"
                         : "use numbers, dimensions and spec parameters";
  return std::nullopt;
}

std::optional<Value> Scope::reduction(const Expr& expr, const Site& site) {
  if (!contains(kReductions, expr.text)) {
    report(Code::unknown_function, expr.head,
           fmt::format("{} is not a reduction", quoted(expr.text)))
        .help = "expected " + support::one_of(kReductions);
    return std::nullopt;
  }
  const Expr& variable = expr.operands[0];
  if (is_bound_name(variable.text) || is_dimension_name(variable.text)) {
    report(Code::reserved_name, variable.span,
           fmt::format("{} is a reserved name", quoted(variable.text)))
        .help = "choose another name for the variable";
    return std::nullopt;
  }
  const auto low = reduction_bound(expr.operands[1], site);
  const auto high = reduction_bound(expr.operands[2], site);
  if (!low || !high) return std::nullopt;
  const std::int64_t count = *high - *low;
  const bool needs_one = expr.text == "min" || expr.text == "max";
  if (count > kMaxRange || (count <= 0 && needs_one)) {
    report(Code::bad_operand, expr.operands[2].span,
           count > 0
               ? fmt::format("the range has {} elements; at most {} are allowed", count, kMaxRange)
               : fmt::format("{} of an empty range has no value", quoted(expr.text)));
    return std::nullopt;
  }
  std::vector<Value> values;
  std::uint64_t size = 0;
  for (std::int64_t i = *low; i < *high; ++i) {
    const Value number =
        operations_.leaf(attention_.dag.integer(i, operations_.place(variable.span)), kConstants);
    locals_.push_back({variable.text, Local::Kind::value, number, {}});
    const std::optional<Value> value = check(expr.operands[3], site);
    locals_.pop_back();
    if (!value) return std::nullopt;
    values.push_back(*value);
    size += value->size;
    if (!bounded(expr, size)) return std::nullopt;  // before a long range makes it far too large
  }
  if (!values.empty()) return operations_.reduce(expr, values);
  ir::Dag& dag = attention_.dag;
  return operations_.leaf(expr.text == "sum" ? dag.integer(0) : dag.boolean(expr.text == "all"),
                          kConstants);
}

std::optional<Value> Scope::index(const Expr& expr, const Site& site) {
  if (is_row_hidden(expr)) return std::nullopt;
  if (is_element(expr)) return element_of_row(expr, site);
  std::vector<std::optional<Value>> indexes;
  for (const Expr& operand : expr.operands) indexes.push_back(check(operand, site));
  const std::optional<std::string> name = tensor_named(expr);
  const ir::CapturedTensor* tensor = name ? attention_.find_tensor(*name) : nullptr;
  if (!tensor) return std::nullopt;  // it, or its shape, was reported
  const ir::KeySum* sum = attention_.find_sum(tensor->name);
  const std::optional<Value> value =
      sum != nullptr ? load_sum(expr, *sum, indexes) : load(expr, *tensor, indexes);
  if (!value || !available(expr, *value, site)) return std::nullopt;
  return value;
}

std::optional<Value> Scope::load(const Expr& expr, const ir::CapturedTensor& tensor,
                                 const std::vector<std::optional<Value>>& indexes) {
  if (indexes.size() != tensor.extents.size()) {
    wrong_rank(expr, tensor);
    return std::nullopt;
  }
  Value result;
  std::vector<ir::ExprId> ids;
  bool fits = true;
  for (std::size_t i = 0; i < indexes.size(); ++i) {
    if (!indexes[i] || !index_fits(expr.operands[i], *indexes[i], tensor.extents[i])) {
      fits = false;
      continue;
    }
    ids.push_back(operations_.narrowed(*indexes[i]).id);
    result.uses |= indexes[i]->uses;
    result.depth = std::max(result.depth, indexes[i]->depth + 1);
    result.size += indexes[i]->size;
  }
  if (!fits) return std::nullopt;
  result.uses |= tensor.learned ? kTensors | kLearned : kTensors;
  result.type = ir::value_type(tensor.dtype);
  result.id = attention_.dag.add_symbol(Op::load_, tensor.name, result.type, ids,
                                        operations_.place(expr.head));
  return result;
}

// Sums are read by the key alone: the batch and the head are those of the score.
std::optional<Value> Scope::load_sum(const Expr& expr, const ir::KeySum& sum,
                                     const std::vector<std::optional<Value>>& indexes) {
  if (indexes.size() != 1) {
    report(Code::wrong_rank, expr.span,
           fmt::format("{} is summed along keys and takes 1 index, found {}",
                       quoted(sum.tensor.name), indexes.size()))
        .help = fmt::format(
        "read `{0}[q_idx]` or `{0}[kv_idx]`: `b` and `h` are those of the score", expr.text);
    return std::nullopt;
  }
  ir::Dag& dag = attention_.dag;
  const ir::SourcePos pos = operations_.place(expr.head);
  if (!indexes[0] || !index_fits(expr.operands[0], *indexes[0], sum.tensor.extents.back()))
    return std::nullopt;
  Value result = *indexes[0];
  std::vector<ir::ExprId> ids;
  if (sum.of_batch) ids.push_back(dag.leaf(Op::batch_, pos));
  if (sum.of_head) ids.push_back(dag.leaf(Op::head_, pos));
  ids.push_back(operations_.narrowed(*indexes[0]).id);
  result.uses |= kTensors | kSums;
  if (sum.of_batch || sum.of_head) result.uses |= kHeads;
  if (sum.tensor.learned) result.uses |= kLearned;
  result.type = Type::real;
  result.depth += 1;
  result.id = dag.add_symbol(Op::load_, sum.tensor.name, Type::real, ids, pos);
  return result;
}

bool Scope::index_fits(const Expr& expr, const Value& index, ir::ExprId extent) {
  if (!ir::is_integral(index.type)) {
    auto& diagnostic =
        report(Code::bad_index, expr.span,
               fmt::format("an index must be an integer, found {}", in_words(index.type)));
    if (index.type == Type::real) diagnostic.help = "divide integers with `//`";
    return false;
  }
  if ((index.uses & kLearned) != 0) {
    no_gradient(expr.span, "the index depends on a learned tensor, but an index has no gradient");
    return false;
  }
  if ((index.uses & kSums) != 0) {
    report(Code::not_available_here, expr.span, "an index cannot depend on sums along keys").help =
        "only scores and weights read sums along keys";
    return false;
  }
  if (index.uses != kConstants) return true;  // its value is not known
  const auto value = ir::fold_integer(attention_.dag, index.id);
  const auto size = ir::fold_integer(attention_.dag, extent);
  if (!value || (*value >= 0 && (!size || *value < *size))) return true;
  auto& diagnostic =
      report(Code::bad_index, expr.span,
             size ? fmt::format("the index is {}, but the dimension has size {}", *value, *size)
                  : fmt::format("the index is {}", *value));
  if (*value < 0) diagnostic.help = "negative indexes do not count from the end";
  return false;
}

std::vector<std::string_view> Scope::names_of(bool functions) const {
  std::vector<std::string_view> names;
  for (const auto& [name, symbol] : symbols_) {
    const bool function = symbol.kind == Symbol::Kind::function;
    const bool poisoned = symbol.kind == Symbol::Kind::poisoned;  // it may have been either
    if (poisoned || function == functions) names.push_back(name);
  }
  return names;
}

void Scope::check_functions() {
  const std::vector<std::string_view> functions = names_of(true);
  const std::vector<std::string_view> names = names_of(false);
  for (const auto& [name, symbol] : symbols_) {
    if (symbol.kind != Symbol::Kind::function) continue;
    const std::span<const std::string_view> seen(names);
    check_function(*symbol.function, library_, functions, symbol.inside ? seen : seen.first(0),
                   sink_);
  }
  for (const auto& [name, function] : library_.functions) {
    check_function(*function, library_, {}, {}, sink_);
  }
}

}  // namespace attn::sema
