#include "compiler/ast/syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "compiler/ast/foreign_syntax.h"
#include "compiler/ast/parse.h"
#include "compiler/support/text.h"

namespace attn::ast {
namespace {

using diag::Code;
using support::quoted;

// Characters that word processors and formulas use instead of ASCII.
constexpr Foreign kLookalikes[] = {
    {"≥", ">="},      {"≤", "<="},          {"≠", "!="}, {"×", "*"},  {"·", "*"},  {"⋅", "*"},
    {"÷", "/"},       {"−", "-"},           {"–", "-"},  {"—", "-"},  {"∧", "&&"}, {"∨", "||"},
    {"¬", "!"},       {"∞", "inf"},         {"“", "\""}, {"”", "\""}, {"„", "\""}, {"‘", "\""},
    {"’", "\""},      {"，", ","},          {"；", ";"}, {"（", "("}, {"）", ")"}, {"：", ":"},
    {"\xC2\xA0", ""}, {"\xE2\x80\x8B", ""},
};

// `=`, `:` and `*=` where the language has none. Each reports the error and returns true, if it is
// so.
class EqualsSigns : public SyntaxHelp {
 public:
  using SyntaxHelp::SyntaxHelp;

  // clamp(x, min=-5, max=5)
  bool report_named_argument() {
    if (text(at_) != "=" || at_ < 3 || !expects_operator() || !is_named(at_ - 1)) return false;
    const std::optional<std::size_t> open = open_bracket();
    if (!open || *open == 0 || kind(*open) != "'('" || !is_word(kind(*open - 1))) return false;
    const std::string call = without_names(*open);
    unexpected({span(at_ - 1).begin, span(at_).end},
               call.empty() ? "arguments are positional: remove the name"
                            : fmt::format("arguments are positional: write `{}`", call));
    return true;
  }

  // `score += 1;` and `score *= 2;`
  bool report_compound_assignment() {
    const std::size_t sign = text(at_) == "=" && at_ > 0 ? at_ - 1 : at_;
    static constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (sign == 0 || sign + 1 >= tokens_.all.size() || text(sign + 1) != "=") return false;
    if (std::ranges::find(kSigns, text(sign)) == std::end(kSigns)) return false;
    if (text(sign - 1) != "score" || !opens_clause(sign - 1)) return false;
    const std::string_view value = value_text(sign + 2);
    const bool is_word = std::ranges::all_of(
        value, [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
    const bool as_it_is = is_word || text(sign) == "+";
    unexpected({span(sign).begin, span(sign + 1).end},
               fmt::format("write `score score {} {}{}{};`", text(sign), as_it_is ? "" : "(", value,
                           as_it_is ? "" : ")"));
    return true;
  }

  // `dropout p = 0.1;`, `scale = 0.5;` and `mask: q_idx >= kv_idx;`
  bool report_clause() {
    static constexpr std::string_view kClauses[] = {
        "dims",     "dtype",    "layout", "scale",   "score",     "mask",     "sink",  "align",
        "dropout",  "outputs",  "grad",   "lengths", "normalize", "quantize", "shard", "weight",
        "prologue", "epilogue", "gate",   "combine", "values",    "gather"};
    const std::string_view sign = text(at_);
    if ((sign != "=" && sign != ":") || at_ < 2) return false;
    if (sign == ":" && in_body(at_)) return false;  // an annotation
    const auto opens = [&](std::size_t at) {
      return std::ranges::find(kClauses, text(at)) != std::end(kClauses) && opens_clause(at);
    };
    const bool has_name =
        sign == "=" && at_ > 2 && expects_operator() && opens(at_ - 2) && text(at_ - 2) != "mask";
    if (!has_name && !opens(at_ - 1)) return false;
    const std::size_t word = has_name ? at_ - 2 : at_ - 1;
    auto& diagnostic = unexpected({span(word + 1).begin, span(at_).end},
                                  fmt::format("clauses do not use {}: write `{} {};`", quoted(sign),
                                              text(word), value_text(at_ + 1)));
    const support::Span extra{span(word).end, span(at_).end};
    if (!has_name) diagnostic.fixes.push_back({"remove the " + quoted(sign), {{extra, ""}}});
    return true;
  }

 private:
  // Whether token `at` is the name of an argument, followed by `=`.
  bool is_named(std::size_t at) const {
    return is_word(kind(at)) && text(at + 1) == "=" && (text(at - 1) == "(" || text(at - 1) == ",");
  }

  // The call whose bracket is token `open`, without argument names; empty if it is long or if the
  // arguments may be in a different order.
  std::string without_names(std::size_t open) const {
    constexpr std::size_t kLongest = 60;
    std::string call = fmt::format("{}(", text(open - 1));
    std::string names;
    std::uint32_t copied = span(open).end;
    std::size_t depth = 1, at = open + 1;
    for (; at + 1 < tokens_.all.size() && text(at) != ";"; ++at) {
      depth += is_open(kind(at)) ? 1 : 0;
      depth -= is_close(kind(at)) ? 1 : 0;
      if (depth == 0) break;
      if (depth > 1 || !is_named(at)) continue;
      call += sink_.source().text().substr(copied, span(at).begin - copied);
      copied = tokens_.all[at + 2].span.begin;
      names += fmt::format("{} ", text(at));
    }
    if (depth != 0) return "";
    call += sink_.source().text().substr(copied, span(at).end - copied);
    const bool in_order = text(open - 1) != "clamp" || names == "min max ";
    return in_order && call.size() <= kLongest && call.find('\n') == call.npos ? call : "";
  }
};

// How a tensor or param is declared.
struct Declaration {
  std::string_view word, help;
};
constexpr Declaration kDeclarations[] = {
    {"tensor", "a tensor is declared as in `tensor bias: f32[Hq, Skv];`"},
    {"learn", "a learned tensor is declared as in `learn bias: f32[Hq, Skv];`"},
    {"param",
     "a number of each call is declared as in `param w: i32;`, a constant of the plan as in "
     "`attention f(w = 3) {`"}};

class SyntaxError : public SyntaxHelp {
 public:
  using SyntaxHelp::SyntaxHelp;

  void report() {
    if (kind(at_) == "UNKNOWN" && !find_foreign(text(at_))) return unexpected_character();
    if (kind(at_) == "BAD_NUMBER") return bad_number();
    if (report_second_attention() || report_comment() || after_expression_word()) return;
    ForeignSyntax foreign(*this);
    EqualsSigns equals(*this);
    if (foreign.report_statement() || equals.report_named_argument()) return;
    if (equals.report_compound_assignment() || report_lengths() || equals.report_clause()) return;
    if (report_declaration() || foreign.report_word() || report_branch_in_braces() ||
        report_bracket()) {
      return;
    }
    put(Code::syntax, at_);
  }

 private:
  void unexpected_character() {
    std::string_view rest = sink_.source().text().substr(span(at_).begin);
    rest = rest.substr(0, support::code_point_bytes(rest));
    support::Span place = span(at_);
    place.end = place.begin + static_cast<std::uint32_t>(rest.size());
    auto& diagnostic = sink_.report(Code::unexpected_character, place,
                                    fmt::format("unexpected character {}", quoted(rest)));
    const auto* meant = std::ranges::find(kLookalikes, rest, &Foreign::word);
    if (meant == std::end(kLookalikes)) return;
    diagnostic.help = meant->help.empty()
                          ? "this is an invisible character: remove it, or write a space"
                          : fmt::format("write `{}`", meant->help);
    diagnostic.fixes.push_back(
        {meant->help.empty() ? "remove it" : diagnostic.help, {{place, std::string(meant->help)}}});
  }

  void bad_number() {
    sink_.report(Code::bad_number, span(at_), fmt::format("{} is not a number", quoted(text(at_))))
        .help = "numbers look like `42`, `0x1f`, `0.5` or `1e-5`";
  }

  // In `mask q_idx >=` newline `outputs o;`, `outputs` is parsed as a name, and the error is after
  // it.
  bool after_expression_word() {
    if (at_ == 0 || !starts_clause(tokens_, at_ - 1) || !expects_operator()) return false;
    sink_.report(Code::syntax, span(at_ - 1),
                 fmt::format("expected an expression, found {}", quoted(text(at_ - 1))));
    return true;
  }

  // Reports a second attention after that of the file.
  bool report_second_attention() {
    if (!expects("EOF") || kind(at_) != "'attention'") return false;
    const auto first = std::ranges::find_if(
        tokens_.all, [&](const Token& token) { return tokens_.kinds[token.type] == kind(at_); });
    if (first->span == span(at_)) return false;
    sink_.report(Code::syntax, span(at_), "a file has only one attention")
        .labels.push_back({first->span, "the first one"});
    return true;
  }

  // `// text` and `/* text */`
  bool report_comment() {
    const bool block = text(at_) == "/" && at_ + 1 < tokens_.all.size() &&
                       text(at_ + 1).starts_with('*') && span(at_ + 1).begin == span(at_).end;
    if (expects_operator() || !(block || text(at_) == "//")) return false;
    unexpected({span(at_).begin, span(at_).begin + 2}, "comments begin with `#`");
    return true;
  }

  // `lengths kv: i32[B];` and `lengths kv i32[B];`
  bool report_lengths() {
    std::size_t word = at_;
    while (word > 0 && kind(word) != "';'" && kind(word) != "'{'" && !opens_clause(word)) --word;
    const bool is_type = text(at_) == ":" || text(at_) == "[" || is_word(kind(at_));
    if (kind(word) != "'lengths'" || word == at_ || tokens_.all[at_].starts_line || !is_type) {
      return false;
    }
    std::string sides;
    for (std::size_t i = word + 1; i < at_; ++i) {
      const bool fits = text(i) == "q" || text(i) == "kv" || text(i) == ",";
      if (!fits) return false;
      sides += text(i) == "," ? ", " : text(i);
    }
    if (sides.ends_with(' ') || text(at_) == "q" || text(at_) == "kv") return false;
    const bool has_sides = !sides.empty();
    auto& diagnostic = put(Code::syntax, at_);
    diagnostic.help = fmt::format(
        "write `lengths {};`: lengths have no type, they are always i32[B], bound as `lengths_kv` "
        "and `lengths_q`",
        has_sides ? sides : "kv");
    diagnostic.fixes.clear();
    std::size_t end = at_;
    const auto ends = [&] { return kind(end) == "';'" || kind(end) == "'='"; };
    while (end + 1 < tokens_.all.size() && !ends() && !starts_clause(tokens_, end)) ++end;
    if (!has_sides || !ends()) return true;
    const std::string_view rest = kind(end) == "'='" ? " " : "";  // a default
    diagnostic.fixes.push_back({fmt::format("write `lengths {};`", sides),
                                {{{span(at_ - 1).end, span(end).begin}, std::string(rest)}}});
    return true;
  }

  // The word that begins this clause, if it declares a tensor or param, in the form that it has.
  bool report_declaration() {
    if (!expects("':'") && !expects("'['")) return false;
    constexpr std::size_t kLongestBegin = 4;
    for (std::size_t back = 1; back <= kLongestBegin && back <= at_; ++back) {
      if (!opens_clause(at_ - back)) continue;
      const auto* form = std::ranges::find(kDeclarations, text(at_ - back), &Declaration::word);
      if (form == std::end(kDeclarations)) return false;
      put(Code::syntax, at_).help = form->help;
      return true;
    }
    return false;
  }

  // `branch a { mask ..; }`
  bool report_branch_in_braces() {
    if (text(at_) != "{" || !is_in_clause(at_, "'branch'")) return false;
    unexpected(span(at_), "the clauses of a branch follow it, up to the next: write `;`");
    return true;
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
    if (!open && report_open_brace()) return true;
    const bool closes_nothing = is_close(kind(at_)) && kind(at_) != "'}'" && !open;
    if (!closes_nothing || expects_expression()) return false;
    sink_.report(Code::unclosed_bracket, span(at_),
                 fmt::format("{} closes a bracket that was not opened", quoted(text(at_))));
    return true;
  }

  // A brace that is still open where the file ends, or where the next attention begins.
  bool report_open_brace() {
    const bool ends = kind(at_) == "EOF" || starts_clause(tokens_, at_);
    if (!expects("'}'") || !ends) return false;
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < at_; ++i) {
      if (kind(i) == "'{'") open.push_back(i);
      if (kind(i) == "'}'" && !open.empty()) open.pop_back();
    }
    if (open.empty()) return false;
    auto& diagnostic = put(Code::unclosed_bracket, at_);
    diagnostic.labels.push_back({span(open.back()), "opened here"});
    const std::uint32_t end = span(at_ - 1).end;
    diagnostic.fixes.push_back({"write the missing `}`", {{{end, end}, "\n}"}}});
    return true;
  }
};

}  // namespace

bool is_utf8(const Tokens& tokens, diag::Sink& sink) {
  const std::string_view text = sink.source().text();
  for (std::size_t i = 0; i < tokens.all.size(); ++i) {
    const std::uint32_t begin = tokens.all[i].span.begin;
    if (tokens.kind(i) != "UNKNOWN" || static_cast<unsigned char>(text[begin]) < 0x80) continue;
    const bool inside = begin > 0 && i > 0 && tokens.kind(i - 1) == "UNKNOWN" &&
                        (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80;
    if (inside || support::code_point_bytes(text.substr(begin)) > 1) continue;
    sink.report(Code::unexpected_character, {begin, begin + 1}, "this is not UTF-8 text").help =
        "save the file as UTF-8";
    return false;
  }
  return true;
}

bool brackets_are_bounded(const Tokens& tokens, diag::Sink& sink) {
  std::size_t depth = 0;
  for (std::size_t i = 0; i < tokens.all.size(); ++i) {
    if (is_close(tokens.kind(i)) && depth > 0) --depth;
    if (is_open(tokens.kind(i)) && ++depth > kMaxBrackets) {
      sink.report(Code::too_deep, tokens.all[i].span,
                  fmt::format("brackets are nested more than {} deep", kMaxBrackets))
          .help = "move part of the expression into a `let`";
      return false;
    }
  }
  return true;
}

void report_syntax_error(const Tokens& tokens, std::size_t at,
                         const std::vector<std::string>& expected, diag::Sink& sink) {
  SyntaxError(SyntaxPlace(tokens, at, expected, sink)).report();
}

}  // namespace attn::ast
