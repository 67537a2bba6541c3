// Reports undefined names and functions, with suggestions.
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
using support::quoted;

// `tensor bias: f32[B, Hq, Sq, Skv];` for bias[b, h, q_idx, kv_idx].
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
  return fmt::format("`tensor {}: f32[{}];`", support::printable(index.text), extents);
}

// Help for a function of this name in the standard library, or "".
std::string standard_import(std::string_view name) {
  for (const support::EmbeddedFile& file : standard_library()) {
    if (file.text.find(fmt::format("fn {}(", name)) == std::string_view::npos) continue;
    return fmt::format("the standard library has it: `import \"{}\";` above the attention",
                       file.name);
  }
  return "";
}

// The operator that joins what `and_masks` and `or_masks` of FlexAttention combine, or "".
std::string_view joint(const Expr& expr) {
  if (expr.kind != ExprKind::call || expr.operands.empty()) return "";
  return expr.text == "and_masks" ? " && " : expr.text == "or_masks" ? " || " : "";
}

}  // namespace

void Scope::unknown(const Expr& expr) {
  std::vector<std::string_view> candidates;
  if (sees_spec()) candidates = names_of(false);
  for (const Local& local : locals_) candidates.push_back(local.name);
  candidates.insert(candidates.end(), bound_names().begin(), bound_names().end());
  candidates.insert(candidates.end(), dimension_names().begin(), dimension_names().end());
  auto& diagnostic =
      report(Code::unknown_name, expr.head, fmt::format("unknown name {}", quoted(expr.text)));
  diagnostic.help = suggestion(expr.text, candidates);
  if (diagnostic.help.empty() && expr.kind == ExprKind::index) {
    diagnostic.help = "declare it: " + declaration_of(expr);
  } else if (diagnostic.help.empty()) {
    diagnostic.help = standard_import(expr.text);
  }
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
  diagnostic.help = joined.empty() ? function_suggestion(expr.text, candidates)
                                   : fmt::format("write `{}`", joined);
  if (diagnostic.help.empty()) diagnostic.help = standard_import(expr.text);
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
