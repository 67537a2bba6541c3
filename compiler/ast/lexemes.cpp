#include "compiler/ast/lexemes.h"

#include <algorithm>
#include <cctype>

#include "compiler/ast/syntax.h"

namespace attn::ast {
namespace {

bool continues_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// One past the end of the string that begins at `at`.
std::size_t string_end(std::string_view text, std::size_t at) {
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '"') return i + 1;
    if (text[i] == '\\') ++i;
  }
  return text.size();
}

// The next lexeme of a JSON text, in which a key is a keyword.
Lexeme json_lexeme(std::string_view text, std::size_t at) {
  std::size_t end = at + 1;
  LexemeKind kind = LexemeKind::sign;
  if (text[at] == '"') {
    end = string_end(text, at);
    const std::size_t next = text.find_first_not_of(" \t\r\n", end);
    const bool is_key = next != text.npos && text[next] == ':';
    kind = is_key ? LexemeKind::keyword : LexemeKind::string;
  } else if (continues_word(text[at]) || text[at] == '-') {
    const auto in_number = [](char c) {
      return continues_word(c) || c == '.' || c == '+' || c == '-';
    };
    while (end < text.size() && in_number(text[end])) ++end;
    kind = LexemeKind::number;
  }
  return {kind, {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(end)}};
}

std::vector<Lexeme> json_lexemes(std::string_view text) {
  std::vector<Lexeme> all;
  for (std::size_t at = 0; at < text.size();) {
    at = text.find_first_not_of(" \t\r\n", at);
    if (at == text.npos) break;
    all.push_back(json_lexeme(text, at));
    at = all.back().span.end;
  }
  return all;
}

// Words of the grammar that are names elsewhere are keywords where a clause may begin.
LexemeKind dsl_kind(const Tokens& tokens, std::size_t at) {
  constexpr std::string_view kAlways[] = {"'attention'", "'return'", "'in'", "'fn'", "'import'"};
  const std::string& kind = tokens.kind(at);
  const std::string before = at == 0 ? "';'" : tokens.kind(at - 1);
  if (kind == "NUMBER" || kind == "FLOAT_INF" || kind == "TRUE" || kind == "FALSE")
    return LexemeKind::number;
  if (kind == "STRING" || kind == "DOCSTRING") return LexemeKind::string;
  if (std::ranges::find(kAlways, kind) != std::end(kAlways)) return LexemeKind::keyword;
  const bool is_quoted_word = kind.size() > 2 && continues_word(kind[1]) && kind[0] == '\'';
  if (is_quoted_word && (before == "';'" || before == "'{'")) return LexemeKind::keyword;
  if (!is_quoted_word && kind != "IDENT") return LexemeKind::sign;
  const bool is_called = at + 1 < tokens.all.size() && tokens.kind(at + 1) == "'('";
  return is_called ? LexemeKind::function : LexemeKind::name;
}

std::vector<Lexeme> dsl_lexemes(const support::Source& source) {
  const Lexed lexed = lex(source);
  std::vector<Lexeme> found;
  for (const support::Span& span : lexed.comments) found.push_back({LexemeKind::comment, span});
  for (std::size_t i = 0; i + 1 < lexed.tokens.all.size(); ++i) {
    found.push_back({dsl_kind(lexed.tokens, i), lexed.tokens.all[i].span});
  }
  std::ranges::sort(found, {}, [](const Lexeme& each) { return each.span.begin; });
  return found;
}

}  // namespace

std::vector<Lexeme> lexemes(const support::Source& source) {
  return source.is_json() ? json_lexemes(source.text()) : dsl_lexemes(source);
}

}  // namespace attn::ast
