#include "compiler/ast/foreign_syntax.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/conditional.h"

namespace attn::ast {
namespace {

constexpr Foreign kForeign[] = {
    {"and", "write `&&`", "&&"},
    {"or", "write `||`", "||"},
    {"not", "write `!`, or `~` as in FlexAttention; both bind tightly: `!(a < b)`"},
    {"if", "write `where(condition, a, b)`"},
    {"elif", "write `where(condition, a, b)`"},
    {"else", "write `where(condition, a, b)`"},
    {"lambda", "paste only the body: `mask q_idx >= kv_idx;`"},
    {"def",
     "delete the line with `def` and the word `return`, and write the expression in a clause: "
     "`mask q_idx >= kv_idx;`; a body of several lines becomes "
     "`fn name(b, h, q_idx, kv_idx) { ... return ...; }`"},
    {"return",
     "paste only the returned expression: `mask q_idx >= kv_idx;`, or the whole body into an `fn`"},
    {"=", "compare with `==`; name a value with `let x = ...;`"},
    {"?", "write `where(condition, a, b)`"},
    {"for", "use a reduction: `any(j in 0..8: kv_idx == j)`"},
    {"while", "use a reduction: `any(j in 0..8: kv_idx == j)`"},
    {"range", "write a range as `0..8`: `any(j in 0..8: kv_idx == j)`"},
    {"from", "write `import \"masks.attn\";`, which imports all functions of a file"},
    {".",
     "there are no modules or methods: write `tanh(x)` for `torch.tanh(x)`, `abs(x)` for "
     "`x.abs()`"},
};

// Modules of Python, of which functions are written with a prefix. (The lexer skips those of torch
// and math.)
constexpr std::string_view kModules[] = {
    "np",    "numpy",  "jnp", "jax",   "lax",     "nn",     "functional", "F",  "tl",  "triton",
    "tf",    "mx",     "cp",  "cupy",  "cute",    "scipy",  "special",    "xp", "ops", "language",
    "torch", "linalg", "std", "keras", "backend", "tensor", "math",       "K",  "hl"};

// What a function of such a module is called here, if the name differs.
constexpr Foreign kFunctions[] = {
    {"absolute", "abs"},  {"fabs", "abs"},      {"clip", "clamp"},    {"arctan2", "atan2"},
    {"power", "pow"},     {"select", "where"},  {"expit", "sigmoid"}, {"logical_not", "!"},
    {"float32", "float"}, {"float64", "float"}, {"float16", "float"}, {"bfloat16", "float"},
    {"int32", "int"},     {"int64", "int"},     {"swish", "silu"},    {"infty", "inf"},
    {"Inf", "inf"},       {"INFINITY", "inf"},  {"fmax", "max"},      {"fmin", "min"},
};

}  // namespace

const Foreign* find_foreign(std::string_view word) {
  const auto* found = std::ranges::find(kForeign, word, &Foreign::word);
  return found == std::end(kForeign) ? nullptr : found;
}

std::string_view foreign_help(std::string_view word) {
  const Foreign* found = find_foreign(word);
  return found ? found->help : "";
}

bool ForeignSyntax::report_word() {
  const bool at_top = expects("'attention'");
  if (!expects_operator() && !expects_expression() && !at_top) return false;
  if (report_arrow() || report_unequal() || report_range()) return true;
  // In `not x` and `return x`, the first word is parsed as a name.
  const bool first =
      at_ > 0 && expects_operator() && find_foreign(text(at_ - 1)) && kind(at_ - 1) == "IDENT";
  const std::size_t at = first ? at_ - 1 : at_;
  const Foreign* found = find_foreign(text(at));
  if (!found) return false;
  if (text(at) == "." && report_module(at)) return true;
  const std::string method = text(at) == "." ? method_help(at) : "";
  auto& diagnostic = unexpected(span(at), method.empty() ? std::string(found->help) : method);
  diagnostic.add_replacement(span(at), found->operator_here);
  condition(at, diagnostic);
  return true;
}

// `np.where(...)` and `jax.nn.silu(x)`, at the first dot.
bool ForeignSyntax::report_module(std::size_t at) {
  if (at == 0 || std::ranges::find(kModules, text(at - 1)) == std::end(kModules)) return false;
  std::size_t last = at + 1;
  while (last + 2 < tokens_.all.size() && text(last + 1) == ".") last += 2;
  if (!is_word(kind(last))) return false;
  const auto* renamed = std::ranges::find(kFunctions, text(last), &Foreign::word);
  const std::string_view name = renamed == std::end(kFunctions) ? text(last) : renamed->help;
  const support::Span path{span(at - 1).begin, span(last).end};
  auto& diagnostic = unexpected(path, fmt::format("there are no modules: write `{}`", name));
  diagnostic.add_replacement(path, name);
  return true;
}

// q_idx.ge(kv_idx) is `q_idx >= kv_idx`, x.abs() is `abs(x)`.
std::string ForeignSyntax::method_help(std::size_t at) const {
  static constexpr Foreign kComparisons[] = {{"ge", ">="}, {"gt", ">"},  {"le", "<="},
                                             {"lt", "<"},  {"eq", "=="}, {"ne", "!="}};
  const bool is_smallest = at > 0 && kind(at - 1) == "')'" && text(at + 1) == "min";
  if (is_smallest) return "a hidden score is `-inf`";  // torch.finfo(..).min
  if (at == 0 || at + 4 >= tokens_.all.size() || kind(at + 2) != "'('") return "";
  const bool is_simple = is_word(kind(at - 1)) && (text(at + 3) == ")" || text(at + 4) == ")");
  if (!is_simple) return "";
  const auto* sign = std::ranges::find(kComparisons, text(at + 1), &Foreign::word);
  if (sign != std::end(kComparisons) && text(at + 4) == ")") {
    return fmt::format("write `{} {} {}`", text(at - 1), sign->help, text(at + 3));
  }
  if (text(at + 3) != ")") return "";
  return fmt::format("there are no methods: write `{}({})`", text(at + 1), text(at - 1));
}

// `=>` for `>=`.
bool ForeignSyntax::report_arrow() {
  if (text(at_) != "=" || at_ + 1 >= tokens_.all.size()) return false;
  const bool arrow = text(at_ + 1) == ">" && span(at_ + 1).begin == span(at_).end;
  if (!arrow) return false;
  unexpected({span(at_).begin, span(at_ + 1).end}, "did you mean `>=`?")
      .add_replacement({span(at_).begin, span(at_ + 1).end}, ">=");
  return true;
}

// `<>` for `!=`.
bool ForeignSyntax::report_unequal() {
  if (text(at_) != ">" || at_ == 0 || text(at_ - 1) != "<") return false;
  const support::Span sign{span(at_ - 1).begin, span(at_).end};
  if (span(at_ - 1).end != span(at_).begin) return false;
  unexpected(sign, "write `!=`").add_replacement(sign, "!=");
  return true;
}

// In `j in range(8):`, range(8) is parsed as the lower bound.
bool ForeignSyntax::report_range() {
  if (!expects("'..'") || text(at_) != ":") return false;
  for (std::size_t i = at_; i-- > 0 && kind(i) != "'in'" && kind(i) != "';'";) {
    if (text(i) != "range") continue;
    unexpected(span(i), std::string(find_foreign(text(i))->help));
    return true;
  }
  return false;
}

// In `if W > 0:`, `if` is parsed as the name of a value.
bool ForeignSyntax::report_statement() {
  if (!in_body(at_) || !expects("'='") || kind(at_ - 1) != "IDENT") return false;
  const Foreign* found = find_foreign(text(at_ - 1));
  if (found == nullptr) return false;
  condition(at_ - 1, unexpected(span(at_ - 1), std::string(found->help)));
  return true;
}

void ForeignSyntax::condition(std::size_t at, diag::Diagnostic& diagnostic) {
  if (text(at) != "if" && text(at) != "?") return;
  const auto rewritten = with_where(tokens_, at, sink_.source().text());
  if (!rewritten) return;
  diagnostic.help = fmt::format("write `{}`", rewritten->text);
  diagnostic.add_replacement(rewritten->span, rewritten->text);
}

}  // namespace attn::ast
