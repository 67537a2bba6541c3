#include "compiler/ast/syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "compiler/ast/parse.h"
#include "compiler/support/text.h"

namespace attn::ast {
namespace {

using diag::Code;
using support::quoted;

constexpr std::array<std::string_view, 21> kClauseWords = {
    "'dims'",    "'dtype'", "'layout'",        "'tensor'",    "'param'", "'let'",    "'scale'",
    "'score'",   "'mask'",  "'outputs'",       "'align'",     "'learn'", "'sink'",   "'dropout'",
    "'lengths'", "'grad'",  "'deterministic'", "'normalize'", "'fn'",    "'import'", "'attention'"};

// Spellings of other languages, where an operator or an operand was expected.
struct Foreign {
  std::string_view word;
  std::string_view help;
};
constexpr Foreign kForeign[] = {
    {"and", "write `&&`"},
    {"or", "write `||`"},
    {"not", "write `!`, or `~` as in FlexAttention; both bind tightly: `!(a < b)`"},
    {"if", "write `where(condition, a, b)`"},
    {"else", "write `where(condition, a, b)`"},
    {"lambda", "paste only the body: `mask q_idx >= kv_idx;`"},
    {"def", "a Python function is `fn name(b, h, q_idx, kv_idx) { ... return ...; }`"},
    {"return",
     "paste only the returned expression: `mask q_idx >= kv_idx;`, or the whole body into an `fn`"},
    {"=", "compare with `==`; name a value with `let x = ...;`"},
    {"?", "write `where(condition, a, b)`"},
    {"for", "a reduction is `any(j in 0..8: kv_idx == j)`"},
    {"range", "a range is `0..8`: `any(j in 0..8: kv_idx == j)`"},
    {"from", "write `import \"masks.attn\";`, which imports all functions of a file"},
    {".", "there are no members or methods: `tanh(x)` for `torch.tanh(x)`, `abs(x)` for `x.abs()`"},
};

bool contains(const std::vector<std::string>& kinds, std::string_view kind) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

bool is_word(std::string_view kind) {
  return kind == "IDENT" || std::ranges::find(kClauseWords, kind) != kClauseWords.end();
}

bool is_open(std::string_view kind) { return kind == "'('" || kind == "'['" || kind == "'{'"; }
bool is_close(std::string_view kind) { return kind == "')'" || kind == "']'" || kind == "'}'"; }
std::string_view partner(std::string_view open) {
  return open == "'('" ? "')'" : open == "'['" ? "']'" : "'}'";
}

class SyntaxError {
 public:
  SyntaxError(const Tokens& tokens, std::size_t at, const std::vector<std::string>& expected,
              diag::Sink& sink)
      : tokens_(tokens), at_(at), expected_(expected), sink_(sink) {}

  void report() {
    if (kind(at_) == "UNKNOWN" && !foreign(at_)) return unexpected_character();
    if (kind(at_) == "BAD_NUMBER") return bad_number();
    if (after_expression_word()) return;
    if (report_foreign()) return;
    if (report_bracket()) return;
    put(Code::syntax, at_);
  }

 private:
  const std::string& kind(std::size_t at) const { return tokens_.kind(at); }
  support::Span span(std::size_t at) const { return tokens_.all[at].span; }
  std::string_view text(std::size_t at) const {
    const support::Span s = span(at);
    return sink_.source().text().substr(s.begin, s.end - s.begin);
  }
  bool expects(std::string_view kind) const { return contains(expected_, kind); }
  bool expects_expression() const { return expects("NUMBER"); }
  bool expects_operator() const { return expects("'*'"); }

  void unexpected_character() {
    std::string_view rest = sink_.source().text().substr(span(at_).begin);
    rest = rest.substr(0, support::code_point_bytes(rest));
    support::Span place = span(at_);
    place.end = place.begin + static_cast<std::uint32_t>(rest.size());
    sink_.report(Code::unexpected_character, place,
                 fmt::format("unexpected character {}", quoted(rest)));
  }

  void bad_number() {
    sink_.report(Code::bad_number, span(at_), fmt::format("{} is not a number", quoted(text(at_))))
        .help = "numbers look like `42`, `0x1f`, `0.5` or `1e-5`";
  }

  // `mask q_idx >=` newline `outputs o;` read the word as a name, and stumbled only after it.
  bool after_expression_word() {
    if (at_ == 0 || !starts_clause(tokens_, at_ - 1) || !expects_operator()) return false;
    sink_.report(Code::syntax, span(at_ - 1),
                 fmt::format("expected an expression, found {}", quoted(text(at_ - 1))));
    return true;
  }

  const Foreign* foreign(std::size_t at) const {
    const auto* found = std::ranges::find(kForeign, text(at), &Foreign::word);
    return found == std::end(kForeign) ? nullptr : found;
  }

  bool report_foreign() {
    const bool at_top = expects("'attention'");
    if (!expects_operator() && !expects_expression() && !at_top) return false;
    if (report_arrow() || report_range()) return true;
    // `not x` and `return x` read the first word as a name.
    const bool first =
        at_ > 0 && expects_operator() && foreign(at_ - 1) && kind(at_ - 1) == "IDENT";
    const std::size_t at = first ? at_ - 1 : at_;
    const Foreign* found = foreign(at);
    if (!found) return false;
    sink_.report(Code::foreign_syntax, span(at), fmt::format("unexpected {}", quoted(text(at))))
        .help = found->help;
    return true;
  }

  // `=>` for `>=`.
  bool report_arrow() {
    if (text(at_) != "=" || at_ + 1 >= tokens_.all.size()) return false;
    const bool arrow = text(at_ + 1) == ">" && span(at_ + 1).begin == span(at_).end;
    if (!arrow) return false;
    sink_.report(Code::foreign_syntax, {span(at_).begin, span(at_ + 1).end}, "unexpected `=>`")
        .help = "did you mean `>=`?";
    return true;
  }

  // `j in range(8):` read range(8) as the lower end.
  bool report_range() {
    if (!expects("'..'") || text(at_) != ":") return false;
    for (std::size_t i = at_; i-- > 0 && kind(i) != "'in'" && kind(i) != "';'";) {
      if (text(i) != "range") continue;
      sink_.report(Code::foreign_syntax, span(i), "unexpected `range`").help = foreign(i)->help;
      return true;
    }
    return false;
  }

  // The innermost bracket of this clause that is still open before the error.
  std::optional<std::size_t> open_bracket() const {
    std::size_t closed = 0;
    for (std::size_t i = at_; i-- > 0;) {
      if (kind(i) == "';'") break;
      if (is_close(kind(i))) ++closed;
      if (is_open(kind(i)) && closed-- == 0) return i;
    }
    return std::nullopt;
  }

  bool report_bracket() {
    const bool at_end = kind(at_) == "EOF" || kind(at_) == "';'" || starts_clause(tokens_, at_);
    if (!at_end && !is_close(kind(at_))) return false;
    const std::optional<std::size_t> open = open_bracket();
    if (open && expects(partner(kind(*open)))) {
      auto& diagnostic = put(Code::unclosed_bracket, at_);
      diagnostic.labels.push_back({span(*open), "opened here"});
      return true;
    }
    const bool closes_nothing = is_close(kind(at_)) && kind(at_) != "'}'" && !open;
    if (!closes_nothing || expects_expression()) return false;
    sink_.report(Code::unclosed_bracket, span(at_),
                 fmt::format("{} closes a bracket that was not opened", quoted(text(at_))));
    return true;
  }

  diag::Diagnostic& put(Code code, std::size_t at) {
    const std::string found = kind(at) == "EOF" ? "the end of the file" : quoted(text(at));
    support::Span place = span(at);
    std::vector<diag::Label> labels;
    // What is missing at the end of a line is missing there, not on the next line.
    const bool goes_on = expects_operator() || expects("';'") || expects("','");
    if (at > 0 && tokens_.all[at].starts_line && goes_on) {
      if (kind(at) != "EOF") labels.push_back({place, "before this"});
      place = {span(at - 1).end, span(at - 1).end};
    }
    auto& diagnostic =
        sink_.report(code, place, fmt::format("expected {}, found {}", expected_words(), found));
    diagnostic.labels = std::move(labels);
    if (in_body_without_return(at)) {
      diagnostic.help = "the body of a function has `name = value` lines and ends with `return`";
    }
    return diagnostic;
  }

  // fn f() { q_idx >= kv_idx }
  bool in_body_without_return(std::size_t at) const {
    if (!expects("'='") && !expects("'return'")) return false;
    std::size_t i = at;
    while (i > 0 && kind(i) != "'{'" && kind(i) != "';'") --i;
    while (i > 0 && kind(i) != "'fn'" && kind(i) != "';'") --i;
    return kind(i) == "'fn'";
  }

  std::string expected_words() const {
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

  void put_classes(std::vector<std::string>& words) const {
    if (expects("CLAUSE")) words.emplace_back("a clause");
    if (expects_expression()) words.emplace_back("an expression");
    if (!expects_expression() && expects("IDENT")) words.emplace_back("a name");
    if (expects("STRING")) words.emplace_back("a path in quotes");
    if (expects_operator()) words.emplace_back("an operator");
  }

  void put_spellings(std::vector<std::string>& words) const {
    static constexpr std::string_view kOperators[] = {
        "'||'", "'&&'", "'<'", "'<='", "'>'", "'>='", "'=='", "'!='", "'|'",  "'^'", "'&'",
        "'<<'", "'>>'", "'+'", "'-'",  "'*'", "'/'",  "'//'", "'%'",  "'**'", "'!'", "'~'"};
    for (const std::string& kind : expected_) {
      const bool opens_operand = (expects_expression() || expects_operator()) &&
                                 (kind == "'('" || kind == "'['" || kind == "'in'");
      const bool spelled = kind.starts_with('\'') && !(is_word(kind) && expects("IDENT"));
      if (!spelled || opens_operand) continue;
      if (std::ranges::find(kOperators, kind) != std::end(kOperators)) continue;
      words.push_back("`" + kind.substr(1, kind.size() - 2) + "`");
    }
    if (expects("EOF")) words.emplace_back("the end of the file");
  }

  const Tokens& tokens_;
  std::size_t at_;
  const std::vector<std::string>& expected_;
  diag::Sink& sink_;
};

}  // namespace

bool starts_clause(const Tokens& tokens, std::size_t at) {
  return tokens.all[at].starts_line &&
         std::ranges::find(kClauseWords, tokens.kind(at)) != kClauseWords.end();
}

bool brackets_are_bounded(const Tokens& tokens, diag::Sink& sink) {
  std::size_t depth = 0;
  for (std::size_t i = 0; i < tokens.all.size(); ++i) {
    if (is_close(tokens.kind(i)) && depth > 0) --depth;
    if (is_open(tokens.kind(i)) && ++depth > kMaxBrackets) {
      sink.report(Code::too_deep, tokens.all[i].span,
                  fmt::format("brackets are nested more than {} deep", kMaxBrackets))
          .help = "name a part of the expression with `let`";
      return false;
    }
  }
  return true;
}

void report_syntax_error(const Tokens& tokens, std::size_t at,
                         const std::vector<std::string>& expected, diag::Sink& sink) {
  SyntaxError(tokens, at, expected, sink).report();
}

}  // namespace attn::ast
