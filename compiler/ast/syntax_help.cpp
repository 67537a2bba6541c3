#include "compiler/ast/syntax_help.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compiler/support/text.h"

namespace attn::ast {
namespace {

constexpr std::array<std::string_view, 31> kClauseWords = {
    "'dims'",     "'dtype'",         "'layout'",    "'tensor'",   "'param'",
    "'let'",      "'scale'",         "'score'",     "'mask'",     "'outputs'",
    "'align'",    "'learn'",         "'sink'",      "'dropout'",  "'lengths'",
    "'grad'",     "'deterministic'", "'normalize'", "'quantize'", "'shard'",
    "'weight'",   "'prologue'",      "'epilogue'",  "'gate'",     "'branch'",
    "'combine'",  "'values'",        "'gather'",    "'fn'",       "'import'",
    "'attention'"};

}  // namespace

bool is_word(std::string_view kind) {
  return kind == "IDENT" || std::ranges::find(kClauseWords, kind) != kClauseWords.end();
}

bool is_open(std::string_view kind) { return kind == "'('" || kind == "'['" || kind == "'{'"; }
bool is_close(std::string_view kind) { return kind == "')'" || kind == "']'" || kind == "'}'"; }
std::string_view partner(std::string_view open) {
  return open == "'('" ? "')'" : open == "'['" ? "']'" : "'}'";
}

bool starts_clause(const Tokens& tokens, std::size_t at) {
  return tokens.all[at].starts_line &&
         std::ranges::find(kClauseWords, tokens.kind(at)) != kClauseWords.end();
}

std::string_view SyntaxPlace::text(std::size_t at) const {
  const support::Span s = span(at);
  return sink_.source().text().substr(s.begin, s.end - s.begin);
}

std::string_view SyntaxPlace::value_text(std::size_t at) const {
  constexpr std::size_t kLongest = 40;
  std::size_t end = at;
  while (end + 1 < tokens_.all.size() && kind(end) != "';'" && kind(end) != "'}'") ++end;
  if (end == at) return "...";
  const std::string_view value =
      sink_.source().text().substr(span(at).begin, span(end - 1).end - span(at).begin);
  return value.size() <= kLongest && value.find('\n') == value.npos ? value : "...";
}

bool SyntaxPlace::opens_clause(std::size_t at) const {
  if (std::ranges::find(kClauseWords, kind(at)) == kClauseWords.end() || at == 0) return false;
  return kind(at - 1) == "';'" || kind(at - 1) == "'{'" || kind(at - 1) == "'}'" ||
         tokens_.all[at].starts_line;
}

bool SyntaxPlace::is_in_clause(std::size_t at, std::string_view word) const {
  while (at-- > 0 && kind(at) != "';'" && kind(at) != "'{'" && kind(at) != "'}'") {
    if (opens_clause(at)) return kind(at) == word;
  }
  return false;
}

std::optional<std::size_t> SyntaxPlace::open_bracket() const {
  std::size_t closed = 0;
  for (std::size_t i = at_; i-- > 0;) {
    if (kind(i) == "';'") break;
    if (is_close(kind(i))) ++closed;
    if (is_open(kind(i)) && closed-- == 0) return i;
  }
  return std::nullopt;
}

bool SyntaxPlace::in_body(std::size_t at) const {
  if (!expects("'='") && !expects("'return'")) return false;
  std::size_t i = std::max<std::size_t>(at, 1) - 1;
  const auto ends = [&] { return kind(i) == "';'" || kind(i) == "'}'"; };
  while (i > 0 && kind(i) != "'{'" && !ends()) --i;
  while (i > 0 && kind(i) != "'fn'" && !ends()) --i;
  return kind(i) == "'fn'";
}

using diag::Code;
using support::quoted;

diag::Diagnostic& SyntaxHelp::put(Code code, std::size_t at) {
  const std::string found = kind(at) == "EOF" ? "the end of the file" : quoted(text(at));
  support::Span place = span(at);
  std::vector<diag::Label> labels;
  // Report what is missing at the end of a line there, not on the next line.
  const bool goes_on = expects_operator() || expects("';'") || expects("','");
  if (at > 0 && tokens_.all[at].starts_line && goes_on) {
    if (kind(at) != "EOF") labels.push_back({place, "before this"});
    place = {span(at - 1).end, span(at - 1).end};
  }
  auto& diagnostic =
      sink_.report(code, place, fmt::format("expected {}, found {}", expected_words(), found));
  const bool lacks_end = place.begin == place.end && expects("';'");
  if (lacks_end && code == Code::syntax) {
    diagnostic.fixes.push_back({"write the missing `;`", {{place, ";"}}});
  }
  diagnostic.labels = std::move(labels);
  diagnostic.help = help(at);
  return diagnostic;
}

diag::Diagnostic& SyntaxHelp::unexpected(support::Span place, std::string help) {
  const auto text = sink_.source().text().substr(place.begin, place.end - place.begin);
  auto& diagnostic =
      sink_.report(Code::foreign_syntax, place, fmt::format("unexpected {}", quoted(text)));
  diagnostic.help = std::move(help);
  return diagnostic;
}

std::string SyntaxHelp::help(std::size_t at) const {
  const bool is_list = at > 0 && (kind(at - 1) == "'outputs'" || kind(at - 1) == "'grad'");
  if (kind(at) == "';'" && is_list) {
    return fmt::format("list them, as in `{};`, or omit the clause",
                       kind(at - 1) == "'grad'" ? "grad q, k, v" : "outputs o, lse");
  }
  const bool is_outputs = is_in_clause(at, "'outputs'");
  if ((is_outputs || is_in_clause(at, "'grad'")) && kind(at) != "EOF" &&
      !tokens_.all[at].starts_line) {
    if (is_word(kind(at))) return "separate names by commas";
    return is_outputs ? "outputs are names, such as `o` and `lse`: compute with them after the call"
                      : "list names of tensors, as in `grad q, k, v;`";
  }
  if (kind(at) == "';'" && at > 0 && kind(at - 1) == "'quantize'") {
    return "say how tensors are scaled: `quantize per_tensor;` or `quantize mxfp8;`";
  }
  if (expects("STRING")) {
    const bool is_name = kind(at) == "IDENT" || is_word(kind(at));
    return fmt::format("write `import \"{}.attn\";`", is_name ? text(at) : "masks");
  }
  if (expects("EOF") && (kind(at) == "'fn'" || kind(at) == "'import'")) {
    return "functions and imports go above the attention";
  }
  if (kind(at) == "DOCSTRING") return "comments begin with `#`";
  if (in_body(at)) return body_help(at);
  return at > 0 && kind(at) == "';'" && kind(at - 1) == "';'" ? "one `;` ends a clause"
                                                              : head_help(at);
}

std::string SyntaxHelp::head_help(std::size_t at) const {
  if (expects("'attention'") && text(at) == "Attention") return "did you mean `attention`?";
  if (at == 0) return "";
  if (kind(at - 1) == "'attention'") return "a spec has a name: `attention name {`";
  const bool after_name = at > 1 && kind(at - 2) == "'attention'" && expects("'{'");
  if (after_name && text(at) == "-") return "a name consists of letters, digits and `_`";
  const bool is_parameter = text(at) == ":" && expects("')'") && expects("'='");
  return is_parameter ? "parameters of a spec have no types: `name = value`" : "";
}

std::string SyntaxHelp::body_help(std::size_t at) const {
  if (text(at) == "," && expects("'='")) return assignments(at - 1);
  if (text(at) == ":" && expects("'='")) return "remove the annotation: `name = value`";
  return "the body of a function has `name = value` lines and ends with `return`";
}

std::string SyntaxHelp::assignments(std::size_t at) const {
  std::vector<std::string_view> names, values;
  for (; is_word(kind(at)); at += 2) {
    names.push_back(text(at));
    if (text(at + 1) != ",") break;
  }
  std::size_t depth = 0, first = at + 2;
  for (at = first; at + 1 < tokens_.all.size(); ++at) {
    const bool at_end = tokens_.all[at].starts_line || (is_close(kind(at)) && depth == 0);
    if (at_end || (text(at) == "," && depth == 0)) {
      if (at == first) break;  // there is no value
      const std::size_t begin = span(first).begin;
      values.push_back(sink_.source().text().substr(begin, span(at - 1).end - begin));
      first = at + 1;
    }
    if (at_end) break;
    depth += is_open(kind(at)) ? 1 : 0;
    depth -= is_close(kind(at)) ? 1 : 0;
  }
  constexpr std::size_t kMost = 3;
  if (names.size() != values.size() || names.size() > kMost) return "assign one name per line";
  std::string lines;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string_view joint = i == 0 ? "" : i + 1 == names.size() ? " and " : ", ";
    lines += fmt::format("{}`{} = {}`", joint, names[i], values[i]);
  }
  return fmt::format("assign one name per line: {}", lines);
}

std::string SyntaxHelp::expected_words() const {
  constexpr std::size_t kAlmostAnything = 40;
  std::vector<std::string> words;
  if (expected_.size() > kAlmostAnything && expects("';'")) {
    words.push_back("`;`");
  } else {
    put_classes(words);
    put_spellings(words);
  }
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

void SyntaxHelp::put_classes(std::vector<std::string>& words) const {
  if (expects("CLAUSE")) words.emplace_back("a clause");
  if (expects_expression()) words.emplace_back("an expression");
  if (!expects_expression() && expects("IDENT")) words.emplace_back("a name");
  if (expects("STRING")) words.emplace_back("a path in quotes");
  if (expects_operator()) words.emplace_back("an operator");
}

void SyntaxHelp::put_spellings(std::vector<std::string>& words) const {
  static constexpr std::string_view kOperatorKinds[] = {
      "'||'", "'&&'", "'<'", "'<='", "'>'", "'>='", "'=='", "'!='", "'|'",  "'^'", "'&'",
      "'<<'", "'>>'", "'+'", "'-'",  "'*'", "'/'",  "'//'", "'%'",  "'**'", "'!'", "'~'"};
  for (const std::string& kind : expected_) {
    const bool opens_operand = (expects_expression() || expects_operator()) &&
                               (kind == "'('" || kind == "'['" || kind == "'in'");
    const bool spelled = kind.starts_with('\'') && !(is_word(kind) && expects("IDENT"));
    if (!spelled || opens_operand) continue;
    if (std::ranges::find(kOperatorKinds, kind) != std::end(kOperatorKinds)) continue;
    words.push_back("`" + kind.substr(1, kind.size() - 2) + "`");
  }
  if (expects("EOF")) words.emplace_back("the end of the file");
}

}  // namespace attn::ast
