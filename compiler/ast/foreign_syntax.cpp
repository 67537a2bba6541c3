#include "compiler/ast/foreign_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

namespace attn::ast {
namespace {

using support::Span;

// `text` does the same as what is written at `span`.
struct Rewritten {
  support::Span span;
  std::string text;
};

constexpr std::size_t kLongestCondition = 200;  // of the text that is proposed
constexpr int kMostConditions = 16;             // in one statement

// `name = value`, or `return value` if the name is empty.
struct Statement {
  std::string name;
  std::string value;
  std::size_t end = 0;  // the token behind it
};

// The tokens of statements, and where conditions and values begin and end.
class StatementTokens {
 public:
  StatementTokens(const Tokens& tokens, std::string_view source)
      : tokens_(tokens), source_(source) {}

 protected:
  bool is_end(std::size_t at) const { return at + 1 >= tokens_.all.size(); }

  std::string_view text(std::size_t at) const {
    const Span span = tokens_.all[at].span;
    return source_.substr(span.begin, span.end - span.begin);
  }

  std::size_t column(std::size_t at) const {
    const std::size_t begin = tokens_.all[at].span.begin;
    const std::size_t line = source_.substr(0, begin).rfind('\n');
    return line == source_.npos ? begin : begin - line - 1;
  }

  static bool opens(std::string_view word) { return word == "(" || word == "[" || word == "{"; }
  static bool closes(std::string_view word) { return word == ")" || word == "]" || word == "}"; }

  // The first token from `at` on, outside brackets, that `stops` is true of.
  template <typename Stops>
  std::size_t find(std::size_t at, std::size_t end, const Stops& stops) const {
    for (std::size_t depth = 0; at < end && !is_end(at); ++at) {
      if (depth == 0 && stops(at)) return at;
      if (opens(text(at))) ++depth;
      if (closes(text(at)) && depth-- == 0) return at;
    }
    return at;
  }

  std::size_t find_word(std::size_t at, std::size_t end, std::string_view word) const {
    return find(at, end, [&](std::size_t i) { return text(i) == word; });
  }

  // Behind `if c` is a colon, or nothing if c is in parentheses.
  std::size_t end_of_condition(std::size_t at) const {
    const std::size_t colon = find(
        at, SIZE_MAX, [&](std::size_t i) { return text(i) == ":" || tokens_.all[i].starts_line; });
    if (text(colon) == ":" || text(at) != "(") return colon;
    return std::min(find_word(at + 1, SIZE_MAX, ")") + 1, tokens_.all.size() - 1);
  }

  // The first token of the value that `at` is in.
  std::size_t begin_of_value(std::size_t at) const {
    static constexpr std::string_view kBefore[] = {"return", "=",     ",",    ";",
                                                   "score",  "scale", "mask", "sink"};
    std::size_t depth = 0;
    while (at > 0) {
      const std::string_view before = text(at - 1);
      const bool is_clause = before.size() < 4 || before == "return" || at < 2 ||
                             tokens_.all[at - 1].starts_line || text(at - 2) == ";" ||
                             text(at - 2) == "{";
      if (depth == 0 && std::ranges::find(kBefore, before) != std::end(kBefore) && is_clause) break;
      if (closes(before)) ++depth;
      if (opens(before) && depth-- == 0) break;
      --at;
    }
    return at;
  }

  // The token behind the value that `at` is in.
  std::size_t end_of_value(std::size_t at) const {
    const std::size_t first = at;
    return find(at, SIZE_MAX, [&](std::size_t i) {
      return text(i) == ";" || text(i) == "," || (i > first && tokens_.all[i].starts_line);
    });
  }

  const Tokens& tokens_;
  std::string_view source_;
};

class ConditionReader : private StatementTokens {
 public:
  using StatementTokens::StatementTokens;

  // The statement that begins with the `if` at this token.
  std::optional<Statement> conditional(std::size_t at) {
    if (left_-- <= 0) return std::nullopt;
    const std::size_t end = end_of_condition(at + 1);
    const std::optional<std::string> condition = condition_in(at + 1, end);
    if (!condition) return std::nullopt;
    std::optional<Statement> then = branch(text(end) == ":" ? end + 1 : end);
    if (!then) return std::nullopt;
    const bool goes_on = !is_end(then->end) && tokens_.all[then->end].starts_line &&
                         column(then->end) > column(at) && text(then->end) != "}";
    if (goes_on) return std::nullopt;  // the branch has more statements
    std::optional<Statement> other = otherwise(*then);
    if (!other || other->name != then->name) return std::nullopt;
    other->value = fmt::format("where({}, {}, {})", *condition, then->value, other->value);
    return other;
  }

  // The value whose `if` or `?` is this token.
  std::optional<Rewritten> value_around(std::size_t at) {
    const std::size_t begin = begin_of_value(at), end = end_of_value(at);
    const std::optional<std::string> value = value_in(begin, end);
    if (!value || begin >= at) return std::nullopt;
    return Rewritten{{tokens_.all[begin].span.begin, tokens_.all[end - 1].span.end}, *value};
  }

 private:
  // A statement, or one in braces.
  std::optional<Statement> branch(std::size_t at) {
    if (text(at) != "{") return statement(at);
    std::optional<Statement> inside = statement(at + 1);
    if (!inside || text(inside->end) != "}") return std::nullopt;
    ++inside->end;
    return inside;
  }

  std::optional<Statement> statement(std::size_t at) {
    if (is_end(at) || is_end(at + 1)) return std::nullopt;
    if (text(at) == "if") return conditional(at);
    const bool returns = text(at) == "return";
    if (!returns && text(at + 1) != "=") return std::nullopt;
    const std::size_t first = returns ? at + 1 : at + 2;
    const std::size_t end = end_of_value(first);
    const std::optional<std::string> value = value_in(first, end);
    if (!value) return std::nullopt;
    return Statement{returns ? "" : std::string(text(at)), *value,
                     text(end) == ";" ? end + 1 : end};
  }

  // What happens if the condition before `then` is false.
  std::optional<Statement> otherwise(const Statement& then) {
    const std::size_t at = then.end;
    if (is_end(at)) return std::nullopt;
    if (text(at) == "elif") return conditional(at);
    if (text(at) == "else") return branch(text(at + 1) == ":" ? at + 2 : at + 1);
    if (then.name.empty()) return statement(at);
    return Statement{then.name, then.name, at};
  }

  // The tokens as one line, with `&&` and `||` for `and` and `or`.
  std::optional<std::string> plain(std::size_t at, std::size_t end) const {
    std::string line;
    for (std::size_t i = at; i < end; ++i) {
      const std::string_view word = text(i);
      if (word == "if" || word == "else" || word == "?" || word == ":") return std::nullopt;
      if (word == "not") return std::nullopt;
      const bool apart = i > at && tokens_.all[i - 1].span.end != tokens_.all[i].span.begin;
      line += fmt::format("{}{}", apart ? " " : "",
                          word == "and"  ? "&&"
                          : word == "or" ? "||"
                                         : word);
    }
    return line.empty() ? std::nullopt : std::optional(line);
  }

  std::optional<std::string> condition_in(std::size_t at, std::size_t end) const {
    if (at < end && text(at) == "not") {
      const std::optional<std::string> rest = plain(at + 1, end);
      const bool joins = rest && (rest->find("&&") != rest->npos || rest->find("||") != rest->npos);
      return rest && !joins ? std::optional(fmt::format("!({})", *rest)) : std::nullopt;
    }
    const bool all = at < end && text(at) == "(" && find_word(at + 1, end, ")") + 1 == end;
    return all ? plain(at + 1, end - 1) : plain(at, end);
  }

  // A value, in which there may be conditions outside brackets.
  std::optional<std::string> value_in(std::size_t at, std::size_t end) {
    if (const std::size_t mark = find_word(at, end, "?"); mark < end && text(mark) == "?") {
      const std::size_t colon = find_word(mark + 1, end, ":");
      return joined(condition_in(at, mark), value_in(mark + 1, colon), colon, end);
    }
    const std::size_t word = find_word(at, end, "if");
    if (word >= end || text(word) != "if") return plain(at, end);
    const std::size_t other = find_word(word + 1, end, "else");
    return joined(condition_in(word + 1, other), plain(at, word), other, end);
  }

  // `other` is the token before the value that holds where the condition does not.
  std::optional<std::string> joined(const std::optional<std::string>& condition,
                                    const std::optional<std::string>& then, std::size_t other,
                                    std::size_t end) {
    if (!condition || !then || other >= end || left_-- <= 0) return std::nullopt;
    const std::optional<std::string> rest = value_in(other + 1, end);
    if (!rest) return std::nullopt;
    return fmt::format("where({}, {}, {})", *condition, *then, *rest);
  }

  int left_ = kMostConditions;
};

// Rewrites the condition whose `if` or `?` is token `at` of `source`: `if c: return a` with what
// follows it, `a if c else b`, `c ? a : b`. For `if c: x = a` without `else`, x keeps its value.
// nullopt for anything else, such as a branch of several statements.
std::optional<Rewritten> with_where(const Tokens& tokens, std::size_t at, std::string_view source) {
  ConditionReader reader(tokens, source);
  const Span begin = tokens.all[at].span;
  const bool opens_line =
      tokens.all[at].starts_line ||
      (at > 0 && (tokens.kind(at - 1) == "'{'" || tokens.kind(at - 1) == "';'"));
  const auto all = opens_line ? reader.conditional(at) : std::nullopt;
  if (!all) {
    std::optional<Rewritten> value = reader.value_around(at);
    return value && value->text.size() <= kLongestCondition ? value : std::nullopt;
  }
  if (all->value.size() > kLongestCondition) return std::nullopt;
  const Span whole{begin.begin, tokens.all[all->end - 1].span.end};
  const std::string_view end = source.substr(0, whole.end).ends_with(';') ? ";" : "";
  const std::string what = all->name.empty() ? "return" : all->name + " =";
  return Rewritten{whole, fmt::format("{} {}{}", what, all->value, end)};
}

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
