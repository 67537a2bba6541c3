#include <algorithm>
#include <array>

#include "compiler/ast/syntax.h"
#include "tools/lsp/features.h"

namespace attn::tools::lsp {
namespace {

// The legend: names of the protocol, in this order.
enum class Kind : std::uint8_t {
  keyword,
  comment,
  string,
  number,
  op,
  function,
  parameter,
  variable,
  property,
  type,
  enumMember,
  none
};
constexpr std::array kKindNames = {"keyword",  "comment",  "string",    "number",
                                   "operator", "function", "parameter", "variable",
                                   "property", "type",     "enumMember"};
constexpr std::array kModifierNames = {"definition", "readonly", "defaultLibrary"};
enum Modifier : std::uint8_t { kDefinition = 1, kReadonly = 2, kDefaultLibrary = 4 };

struct Coloured {
  Span span;
  Kind kind = Kind::none;
  std::uint8_t modifiers = 0;
};

Coloured word_colour(WordKind kind) {
  switch (kind) {
    case WordKind::clause: return {{}, Kind::keyword};
    case WordKind::dimension: return {{}, Kind::property, kReadonly};
    case WordKind::value: return {{}, Kind::variable, kReadonly | kDefaultLibrary};
    case WordKind::tensor: return {{}, Kind::variable, kDefaultLibrary};
    case WordKind::function: return {{}, Kind::function, kDefaultLibrary};
    case WordKind::type: return {{}, Kind::type};
    case WordKind::layout:
    case WordKind::output:
    case WordKind::choice:
    case WordKind::side:
    case WordKind::fact: return {{}, Kind::enumMember};
  }
  return {};
}

Coloured colour_of(const Symbol& symbol) {
  switch (symbol.meaning) {
    case Meaning::attention: return {{}, Kind::type};
    case Meaning::parameter: return {{}, Kind::parameter, kReadonly};
    case Meaning::dimension: return {{}, Kind::property, kReadonly};
    case Meaning::tensor:
    case Meaning::param: return {{}, Kind::variable};
    case Meaning::let:
    case Meaning::branch:
    case Meaning::local: return {{}, Kind::variable, kReadonly};
    case Meaning::function: return {{}, Kind::function};
    case Meaning::argument:
    case Meaning::variable: return {{}, Kind::parameter};
    case Meaning::import: return {{}, Kind::string};
    case Meaning::word: return word_colour(symbol.word);
  }
  return {};
}

// The kind that a token has by its own kind alone.
Kind kind_of(const std::string& kind) {
  if (kind == "NUMBER") return Kind::number;
  if (kind == "STRING" || kind == "DOCSTRING") return Kind::string;
  if (kind.size() > 2 && kind[0] == '\'') {
    const bool is_word = (kind[1] >= 'a' && kind[1] <= 'z') || (kind[1] >= 'A' && kind[1] <= 'Z');
    if (is_word) return Kind::keyword;
    constexpr std::string_view kNoOperators = "(){}[],;:";
    return kNoOperators.find(kind[1]) == std::string_view::npos ? Kind::op : Kind::none;
  }
  return Kind::none;
}

// Coloured words of the document itself, in text order. A name is coloured by what it means, if
// that is known.
std::vector<Coloured> coloured(const Request& request) {
  const support::Source& source = *request.analysis.source;
  std::vector<Coloured> all;
  const Index& index = request.analysis.index;
  for (const Use& use : index.uses()) {
    const auto [file, local] = request.analysis.locate(use.span);
    if (file != &source) continue;
    Coloured one = colour_of(index.symbol(use));
    one.span = local;
    if (index.symbol(use).definition == use.span) one.modifiers |= kDefinition;
    all.push_back(one);
  }
  if (!source.is_json()) {
    const ast::Lexed lexed = ast::lex(source);
    for (const Span comment : lexed.comments) all.push_back({comment, Kind::comment});
    for (std::size_t i = 0; i < lexed.tokens.all.size(); ++i) {
      const Kind kind = kind_of(lexed.tokens.kind(i));
      if (kind != Kind::none) all.push_back({lexed.tokens.all[i].span, kind});
    }
  }
  std::ranges::stable_sort(all, {}, [](const Coloured& one) { return one.span.begin; });
  const auto same_place = [](const Coloured& a, const Coloured& b) {
    return b.span.begin < a.span.end;
  };
  all.erase(std::ranges::unique(all, same_place).begin(), all.end());
  return all;
}

}  // namespace

Json token_legend() { return {{"tokenTypes", kKindNames}, {"tokenModifiers", kModifierNames}}; }

// Five numbers a token: lines and characters since the previous one, length, type, modifiers.
// Tokens of several lines are split.
Json semantic_tokens(const Request& request) {
  const Text& text = request.document.text;
  Json data = Json::array();
  Position last;
  const auto put = [&](Span span, const Coloured& one) {
    const Range range = text.range(span);
    if (range.end == range.begin) return;
    const bool same_line = range.begin.line == last.line;
    data.push_back(range.begin.line - last.line);
    data.push_back(range.begin.character - (same_line ? last.character : 0));
    data.push_back(range.end.character - range.begin.character);
    data.push_back(static_cast<int>(one.kind));
    data.push_back(one.modifiers);
    last = range.begin;
  };
  for (const Coloured& one : coloured(request)) {
    std::uint32_t begin = one.span.begin;
    while (begin < one.span.end) {
      const auto rest = std::string_view(text.bytes()).substr(begin, one.span.end - begin);
      const std::size_t length = std::min(rest.find_first_of("\r\n"), rest.size());
      const auto end = begin + static_cast<std::uint32_t>(length);
      put({begin, end}, one);
      begin = end + 1;
    }
  }
  return {{"data", data}};
}

}  // namespace attn::tools::lsp
