// Reports undefined names and functions, with suggestions.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include "compiler/ast/print.h"
#include "compiler/sema/names.h"
#include "compiler/sema/scope.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using ast::Expr;
using ast::ExprKind;
using diag::Code;
using ir::Dim;
using ir::Op;
using support::quoted;

// "tensor bias: f32[B, Hq, Sq, Skv];" for bias[b, h, q_idx, kv_idx].
std::string declaration_of(const Expr& index) {
  std::string extents;
  for (const Expr& one : index.operands) {
    const std::string_view extent = one.text == "b"                              ? "B"
                                    : one.text == "h"                            ? "Hq"
                                    : one.text == "q_idx" || one.text == "q_raw" ? "Sq"
                                    : one.text == "kv_idx"                       ? "Skv"
                                                                                 : "N";
    extents += fmt::format("{}{}", extents.empty() ? "" : ", ", extent);
  }
  return fmt::format("tensor {}: f32[{}];", support::printable(index.text), extents);
}

// The file of the standard library that has a function of this name, or "".
std::string_view standard_file(std::string_view name) {
  for (const support::EmbeddedFile& file : standard_library()) {
    if (file.text.find(fmt::format("fn {}(", name)) != std::string_view::npos) return file.name;
  }
  return "";
}

// The beginning of the line at `offset`, if only spaces are before it there.
std::optional<std::uint32_t> line_begin(std::string_view text, std::uint32_t offset) {
  const std::size_t before = text.find_last_not_of(" \t", offset == 0 ? 0 : offset - 1);
  if (offset == 0 || before == text.npos) return 0;
  if (text[before] != '\n') return std::nullopt;
  return static_cast<std::uint32_t>(before + 1);
}

// The operator that joins what `and_masks` and `or_masks` of FlexAttention combine, or "".
std::string_view joint(const Expr& expr) {
  if (expr.kind != ExprKind::call || expr.operands.empty()) return "";
  return expr.text == "and_masks" ? " && " : expr.text == "or_masks" ? " || " : "";
}

}  // namespace

void Scope::not_a_value(const Expr& expr, const ast::FunctionClause& function) {
  auto& diagnostic = report(Code::type_mismatch, expr.span,
                            fmt::format("{} is a function, not a value", quoted(expr.text)));
  diagnostic.help = fmt::format("call it: `{}`", call_of(function));
  if (has_usual_arguments(function)) rewrite(expr, call_of(function), diagnostic);
}

void Scope::unknown(const Expr& expr) {
  const auto imported = library_.functions.find(expr.text);
  if (expr.kind == ExprKind::name && imported != library_.functions.end()) {
    return not_a_value(expr, *imported->second);
  }
  std::vector<std::string_view> candidates;
  if (sees_spec()) candidates = names_of(false);
  for (const Local& local : locals_) candidates.push_back(local.name);
  candidates.insert(candidates.end(), bound_names().begin(), bound_names().end());
  candidates.insert(candidates.end(), dimension_names().begin(), dimension_names().end());
  auto& diagnostic =
      report(Code::unknown_name, expr.head, fmt::format("unknown name {}", quoted(expr.text)));
  suggestion(expr.text, candidates).put(diagnostic, expr.head);
  if (diagnostic.help.empty() && expr.kind == ExprKind::index) {
    suggest_tensor(expr, diagnostic);
  } else if (diagnostic.help.empty()) {
    suggest_import(expr.text, diagnostic);
  }
}

void Scope::suggest_tensor(const Expr& index, diag::Diagnostic& diagnostic) const {
  const std::string declaration = declaration_of(index);
  diagnostic.help = ast::hint_for(sink_.source(), fmt::format("declare it: `{}`", declaration));
  const auto line = line_begin(sink_.source().text(), clause_.begin);
  if (!line || clause_.end == 0 || sink_.source().is_json()) return;
  const std::string_view indent = sink_.source().text().substr(*line, clause_.begin - *line);
  diagnostic.fixes.push_back({"declare the tensor " + quoted(index.text),
                              {{{*line, *line}, fmt::format("{}{}\n", indent, declaration)}}});
}

void Scope::suggest_import(std::string_view name, diag::Diagnostic& diagnostic) const {
  const std::string_view file = standard_file(name);
  if (file.empty()) return;
  const std::string import = fmt::format("import \"{}\";", file);
  if (sink_.source().is_json()) {
    diagnostic.help =
        fmt::format("the standard library has it: `\"preamble\": [{{\"import\": \"{}\"}}]`", file);
    return;
  }
  diagnostic.help = fmt::format("the standard library has it: `{}` above the attention", import);
  const auto line = line_begin(sink_.source().text(), attention_begin_);
  if (!line) return;
  diagnostic.fixes.push_back({"import " + quoted(file), {{{*line, *line}, import + "\n\n"}}});
}

// An element of the tensor: `bias[h, q_idx, kv_idx]` of a bias of the sizes of Hq, Sq and Skv. The
// name of an extent says more than its size, which several dimensions may have.
std::string Scope::example_of(const std::string& tensor, const Symbol& symbol) const {
  std::vector<std::pair<Dim, std::string_view>> free = {
      {Dim::B, "b"}, {Dim::Hq, "h"}, {Dim::Sq, "q_idx"}, {Dim::Skv, "kv_idx"}};
  const ir::Dag& dag = attention_.dag;
  const std::vector<ir::ExprId>& extents = attention_.find_tensor(tensor)->extents;
  std::vector<std::string_view> indexes(extents.size());
  const auto take = [&](std::size_t i, const auto& is_its) {
    const auto its = std::ranges::find_if(free | std::views::reverse, is_its);
    if (!indexes[i].empty() || its == free.rend()) return;
    indexes[i] = its->second;
    free.erase(std::next(its).base());
  };
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const ir::ExprId extent = extents[i];
    const std::string_view name = dag[extent].is(Op::dim_) ? dag.symbol_of(extent)
                                  : symbol.tensor          ? symbol.tensor->extents[i].text
                                                           : std::string_view();
    take(i, [&](const auto& index) { return to_string(index.first) == name; });
  }
  for (std::size_t i = extents.size(); i-- > 0;) {
    const auto size = ir::fold_integer(dag, extents[i]);
    take(i, [&](const auto& index) { return size && attention_.dims.get(index.first) == size; });
  }
  for (std::string_view& index : indexes) {
    if (index.empty()) index = "0";
  }
  return fmt::format("{}[{}]", tensor, fmt::join(indexes, ", "));
}

void Scope::unknown_function(const Expr& expr) {
  const auto found = sees_spec() ? symbols_.find(expr.text) : symbols_.end();
  if (found != symbols_.end() && found->second.kind == Symbol::Kind::poisoned) return;
  if (found == symbols_.end() && !library_.complete) return;  // reported where it is imported
  auto& diagnostic = report(Code::unknown_function, expr.head,
                            fmt::format("unknown function {}", quoted(expr.text)));
  if (found != symbols_.end()) {
    found->second.used = true;
    diagnostic.labels.push_back({found->second.span, "defined here"});
    if (found->second.kind == Symbol::Kind::tensor) {
      diagnostic.help = "a tensor is indexed with brackets: `t[b, kv_idx]`";
    }
    return;
  }
  std::vector<std::string_view> candidates = function_names();
  for (const std::string_view name : names_of(true)) candidates.push_back(name);
  for (const auto& [name, function] : library_.functions) candidates.push_back(name);
  const std::string joined = joined_masks(expr);
  if (!joined.empty()) {
    diagnostic.help = fmt::format("write `{}`", joined);
    return rewrite(expr, joined, diagnostic);
  }
  function_suggestion(expr.text, candidates).put(diagnostic, expr.head);
  if (diagnostic.help.empty()) suggest_import(expr.text, diagnostic);
}

// Those of a mod in FlexAttention, or none.
bool Scope::has_usual_arguments(const ast::FunctionClause& function) {
  const std::size_t count = function.parameters.size();
  const char first = count == 0 ? ' ' : function.parameters[0].text[0];
  return count == 0 || (count == 4 && first == 'b') || (count == 5 && first == 's');
}

// A call of the function, with the usual arguments of a mod: `causal(b, h, q_idx, kv_idx)`.
std::string Scope::call_of(const ast::FunctionClause& function) const {
  const std::size_t count = function.parameters.size();
  const char first = count == 0 ? ' ' : function.parameters[0].text[0];
  std::string arguments;
  if (count == 4 && first == 'b') {
    arguments = "b, h, q_idx, kv_idx";
  } else if (count == 5 && first == 's') {
    arguments = "score, b, h, q_idx, kv_idx";
  } else {
    for (const ast::Name& one : function.parameters) {
      arguments += (arguments.empty() ? "" : ", ") + one.text;
    }
  }
  return fmt::format("{}({})", function.name.text, arguments);
}

bool Scope::is_function_name(const Expr& expr) {
  if (!joint(expr).empty()) {
    return std::ranges::all_of(expr.operands,
                               [&](const Expr& operand) { return is_function_name(operand); });
  }
  return expr.kind == ExprKind::name && find_local(expr.text) == nullptr &&
         find_function(expr.text).has_value();
}

// `f(b, h, q_idx, kv_idx) && g(b, h, q_idx, kv_idx)` for and_masks(f, g); "" for anything else.
std::string Scope::joined_masks(const Expr& expr) {
  const std::string_view sign = joint(expr);
  if (sign.empty() || !is_function_name(expr)) return "";
  std::string text;
  for (const Expr& operand : expr.operands) {
    const bool is_joint = !joint(operand).empty();
    const std::string one = is_joint ? fmt::format("({})", joined_masks(operand))
                                     : call_of(*find_function(operand.text)->function);
    text += fmt::format("{}{}", text.empty() ? "" : sign, one);
  }
  return text;
}

}  // namespace attn::sema
