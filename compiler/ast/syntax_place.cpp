#include "compiler/ast/syntax_place.h"

#include <algorithm>
#include <array>

namespace attn::ast {
namespace {

constexpr std::array<std::string_view, 23> kClauseWords = {
    "'dims'",     "'dtype'",   "'layout'",  "'tensor'",  "'param'",         "'let'",
    "'scale'",    "'score'",   "'mask'",    "'outputs'", "'align'",         "'learn'",
    "'sink'",     "'dropout'", "'lengths'", "'grad'",    "'deterministic'", "'normalize'",
    "'quantize'", "'shard'",   "'fn'",      "'import'",  "'attention'"};

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

}  // namespace attn::ast
