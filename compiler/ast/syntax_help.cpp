#include "compiler/ast/syntax_help.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/support/text.h"

namespace attn::ast {

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
