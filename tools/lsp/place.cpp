#include "tools/lsp/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace attn::tools::lsp {
namespace {

using ast::Tokens;

bool is_word_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Whether the line before the offset is `import "...`; then where the path begins.
std::optional<std::uint32_t> path_begin(std::string_view text, std::uint32_t offset) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t line = before.find_last_of("\r\n");
  const std::size_t begin = line == before.npos ? 0 : line + 1;
  std::string_view rest = before.substr(begin);
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  if (!rest.starts_with("import")) return std::nullopt;
  rest.remove_prefix(std::string_view("import").size());
  const std::size_t quote = rest.find_first_not_of(" \t");
  if (quote == rest.npos || rest[quote] != '"') return std::nullopt;
  if (rest.find('"', quote + 1) != rest.npos) return std::nullopt;
  return static_cast<std::uint32_t>(offset - (rest.size() - quote - 1));
}

// What clauses expect wherever the cursor is in them.
struct ExpectedIn {
  std::string_view keyword;
  Expected expected;
};
constexpr ExpectedIn kExpectedIn[] = {
    {"dtype", Expected::type},          {"align", Expected::choice},
    {"normalize", Expected::choice},    {"shard", Expected::choice},
    {"outputs", Expected::output},      {"grad", Expected::gradient},
    {"scale", Expected::expression},    {"score", Expected::expression},
    {"mask", Expected::expression},     {"sink", Expected::expression},
    {"dropout", Expected::expression},  {"weight", Expected::expression},
    {"prologue", Expected::expression}, {"epilogue", Expected::expression},
    {"gate", Expected::expression},     {"combine", Expected::expression},
    {"values", Expected::expression},   {"gather", Expected::expression}};

// Follows the tokens before the cursor.
class Walker {
 public:
  Walker(std::string_view text, const Tokens& tokens, std::size_t count)
      : text_(text), tokens_(tokens), count_(count) {
    for (std::size_t at = 0; at < count_; ++at) take(at);
  }

  std::string keyword() const { return clause_ < count_ ? word(clause_) : ""; }

  Expected expected() const {
    if (level() == Level::function) return Expected::expression;
    if (clause_ >= count_) {
      return level() == Level::attention ? Expected::clause : Expected::item;
    }
    return in_clause(word(clause_));
  }

  bool in_attention() const {
    return std::ranges::find(levels_, Level::attention) != levels_.end();
  }

  // Parameters of the function, names before `=` in its body, and variables of reductions.
  std::vector<std::string> locals() const {
    std::vector<std::string> names;
    const std::size_t from = function_ ? *function_ : clause_;
    const bool is_function = from < count_ && kind(from) == "'fn'";
    bool in_parameters = is_function;
    for (std::size_t at = from + 1; at < count_; ++at) {
      if (kind(at) == "')'") in_parameters = false;
      if (!is_word_byte(text_[tokens_.all[at].span.begin])) continue;
      const bool follows_bracket = kind(at - 1) == "'('" || kind(at - 1) == "','";
      const bool is_variable = at + 1 < count_ && kind(at + 1) == "'in'";
      const bool is_value = is_function && at + 1 < count_ && kind(at + 1) == "'='" &&
                            !in_parameters && at > from + 1;
      if ((in_parameters && follows_bracket) || is_variable || is_value) names.push_back(word(at));
    }
    if (expected() == Expected::element) {
      for (std::size_t axis = 0; axis < axes(); ++axis) names.push_back(fmt::format("i{}", axis));
    }
    return names;
  }

 private:
  enum class Level { file, attention, function, set };

  const std::string& kind(std::size_t at) const { return tokens_.kind(at); }
  std::string word(std::size_t at) const {
    const support::Span span = tokens_.all[at].span;
    return std::string(text_.substr(span.begin, span.end - span.begin));
  }
  Level level() const { return levels_.empty() ? Level::file : levels_.back(); }

  void take(std::size_t at) {
    if (kind(at) == "'{'") return enter(at);
    if (kind(at) == "'}'") return leave(at);
    if (level() == Level::function || level() == Level::set) return;
    if (kind(at) == "';'") {
      begin_clause(at + 1);
    } else if (ast::starts_clause(tokens_, at)) {
      begin_clause(at);
    }
    if (clause_ == at && kind(at) == "'fn'") function_ = at;
  }

  void begin_clause(std::size_t at) {
    clause_ = at;
    function_.reset();
  }

  void enter(std::size_t at) {
    const std::string opens = clause_ < at ? kind(clause_) : "";
    if (opens == "'attention'") {
      levels_.push_back(Level::attention);
      begin_clause(at + 1);
    } else {
      levels_.push_back(opens == "'fn'" ? Level::function : Level::set);
    }
  }

  void leave(std::size_t at) {
    const Level left = level();
    if (!levels_.empty()) levels_.pop_back();
    if (left != Level::set) begin_clause(at + 1);
  }

  // Number of axes of the tensor that the clause declares; lengths have one.
  std::size_t axes() const {
    std::size_t count = 1;
    for (std::size_t at = clause_; at < count_ && kind(at) != "']'" && kind(at) != "'='"; ++at) {
      if (kind(at) == "','") ++count;
    }
    return keyword() == "lengths" ? 1 : count;
  }

  const std::string& last() const { return kind(count_ - 1); }
  bool has(std::string_view wanted) const {
    for (std::size_t at = clause_; at < count_; ++at) {
      if (kind(at) == wanted) return true;
    }
    return false;
  }
  // How many brackets of the clause are open.
  int open_brackets() const {
    int open = 0;
    for (std::size_t at = clause_; at < count_; ++at) {
      if (kind(at) == "'('" || kind(at) == "'['" || kind(at) == "'{'") ++open;
      if (kind(at) == "')'" || kind(at) == "']'" || kind(at) == "'}'") --open;
    }
    return open;
  }

  Expected in_clause(const std::string& keyword) const {
    const bool begins_entry = open_brackets() == 0 && (count_ == clause_ + 1 || last() == "','");
    if (keyword == "dims") return begins_entry ? Expected::dimension : Expected::constant;
    if (keyword == "layout") {
      if (begins_entry) return Expected::layout;
      return last() == "':'" ? Expected::layout_kind : Expected::constant;
    }
    if (keyword == "tensor" || keyword == "learn") return in_tensor();
    if (keyword == "dtype" && has("','"))
      return last() == "':'" ? Expected::cache_type : Expected::nothing;
    if (keyword == "param") return has("':'") ? Expected::type : Expected::nothing;
    if (keyword == "quantize") {
      if (open_brackets() > 0 && !has("','")) return Expected::cache_scale;
      return count_ == clause_ + 1 ? Expected::choice : Expected::constant;
    }
    if (keyword == "branch") {
      const bool begins_input = last() == "':'" || last() == "','";
      return last() == "'='" ? Expected::tensor
             : begins_input  ? Expected::input
                             : Expected::nothing;
    }
    if (keyword == "lengths") return begins_entry ? Expected::side : Expected::element;
    if (keyword == "let" || keyword == "fn") {
      return has("'='") ? Expected::expression : Expected::nothing;
    }
    if (keyword == "attention") return has("'='") ? Expected::constant : Expected::nothing;
    const auto* found = std::ranges::find(kExpectedIn, keyword, &ExpectedIn::keyword);
    if (found != std::end(kExpectedIn)) return found->expected;
    // A word that is no keyword yet.
    return Expected::nothing;
  }

  Expected in_tensor() const {
    if (!has("':'")) return Expected::nothing;
    if (last() == "':'") return Expected::type;
    if (has("'='")) return Expected::element;
    if (open_brackets() > 0) return Expected::constant;
    return has("']'") ? Expected::fact : Expected::nothing;
  }

  std::string_view text_;
  const Tokens& tokens_;
  std::size_t count_;
  std::size_t clause_ = 0;  // its first token; count_ or more at its beginning
  std::optional<std::size_t> function_;
  std::vector<Level> levels_;
};

}  // namespace

Place place_at(std::string_view text, const ast::Lexed& lexed, std::uint32_t offset) {
  Place place;
  place.word_begin = offset;
  if (const auto begin = path_begin(text, offset)) {
    place.expected = Expected::path;
    place.word_begin = *begin;
    return place;
  }
  const bool in_comment = std::ranges::any_of(lexed.comments, [&](support::Span comment) {
    return comment.begin < offset && offset <= comment.end;
  });
  if (in_comment) return place;
  while (place.word_begin > 0 && is_word_byte(text[place.word_begin - 1])) --place.word_begin;
  const auto& all = lexed.tokens.all;
  const auto end = std::ranges::find_if(all, [&](const ast::Token& token) {
    return token.span.end > place.word_begin || token.span.begin >= place.word_begin;
  });
  const Walker walker(text, lexed.tokens, static_cast<std::size_t>(end - all.begin()));
  place.keyword = walker.keyword();
  place.expected = walker.expected();
  place.in_attention = walker.in_attention();
  place.locals = walker.locals();
  const bool in_number =
      place.word_begin < offset && text[place.word_begin] >= '0' && text[place.word_begin] <= '9';
  if (in_number) place.expected = Expected::nothing;
  return place;
}

}  // namespace attn::tools::lsp
