#include "compiler/ast/syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "compiler/ast/conditional.h"
#include "compiler/ast/parse.h"
#include "compiler/support/text.h"

namespace attn::ast {
namespace {

using diag::Code;
using support::quoted;

constexpr std::array<std::string_view, 23> kClauseWords = {
    "'dims'",     "'dtype'",   "'layout'",  "'tensor'",  "'param'",         "'let'",
    "'scale'",    "'score'",   "'mask'",    "'outputs'", "'align'",         "'learn'",
    "'sink'",     "'dropout'", "'lengths'", "'grad'",    "'deterministic'", "'normalize'",
    "'quantize'", "'shard'",   "'fn'",      "'import'",  "'attention'"};

// Syntax of other languages, where an operator or an operand was expected.
struct Foreign {
  std::string_view word;
  std::string_view help;
  std::string_view operator_here = "";  // that means the same
};
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

// Characters that word processors and formulas use instead of ASCII.
constexpr Foreign kLookalikes[] = {
    {"≥", ">="},      {"≤", "<="},          {"≠", "!="}, {"×", "*"},  {"·", "*"},  {"⋅", "*"},
    {"÷", "/"},       {"−", "-"},           {"–", "-"},  {"—", "-"},  {"∧", "&&"}, {"∨", "||"},
    {"¬", "!"},       {"∞", "inf"},         {"“", "\""}, {"”", "\""}, {"„", "\""}, {"‘", "\""},
    {"’", "\""},      {"，", ","},          {"；", ";"}, {"（", "("}, {"）", ")"}, {"：", ":"},
    {"\xC2\xA0", ""}, {"\xE2\x80\x8B", ""},
};

bool contains(const auto& words, std::string_view word) {
  return std::ranges::find(words, word) != std::end(words);
}

bool is_word(std::string_view kind) {
  return kind == "IDENT" || std::ranges::find(kClauseWords, kind) != kClauseWords.end();
}

bool is_open(std::string_view kind) { return kind == "'('" || kind == "'['" || kind == "'{'"; }
bool is_close(std::string_view kind) { return kind == "')'" || kind == "']'" || kind == "'}'"; }
std::string_view partner(std::string_view open) {
  return open == "'('" ? "')'" : open == "'['" ? "']'" : "'}'";
}

const Foreign* find_foreign(std::string_view word) {
  const auto* found = std::ranges::find(kForeign, word, &Foreign::word);
  return found == std::end(kForeign) ? nullptr : found;
}

class SyntaxError {
 public:
  SyntaxError(const Tokens& tokens, std::size_t at, const std::vector<std::string>& expected,
              diag::Sink& sink)
      : tokens_(tokens), at_(at), expected_(expected), sink_(sink) {}

  void report() {
    if (kind(at_) == "UNKNOWN" && !foreign(at_)) return unexpected_character();
    if (kind(at_) == "BAD_NUMBER") return bad_number();
    if (report_second_attention() || report_comment()) return;
    if (after_expression_word()) return;
    if (report_statement() || report_named_argument()) return;
    if (report_compound_assignment() || report_lengths() || report_clause_with_equals()) return;
    if (report_declaration()) return;
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

  diag::Diagnostic& unexpected(support::Span place, std::string help) {
    const auto text = sink_.source().text().substr(place.begin, place.end - place.begin);
    auto& diagnostic =
        sink_.report(Code::foreign_syntax, place, fmt::format("unexpected {}", quoted(text)));
    diagnostic.help = std::move(help);
    return diagnostic;
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

  // In `if W > 0:`, `if` is parsed as the name of a value.
  bool report_statement() {
    if (!in_body(at_) || !expects("'='") || kind(at_ - 1) != "IDENT") return false;
    const Foreign* found = foreign(at_ - 1);
    if (found == nullptr) return false;
    condition(at_ - 1, unexpected(span(at_ - 1), std::string(found->help)));
    return true;
  }

  // Proposes `where` for the condition at this token, if it is one.
  void condition(std::size_t at, diag::Diagnostic& diagnostic) {
    if (text(at) != "if" && text(at) != "?") return;
    const auto rewritten = with_where(tokens_, at, sink_.source().text());
    if (!rewritten) return;
    diagnostic.help = fmt::format("write `{}`", rewritten->text);
    diagnostic.add_replacement(rewritten->span, rewritten->text);
  }

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

  // `dropout p = 0.1;`, `scale = 0.5;` and `mask: q_idx >= kv_idx;`
  bool report_clause_with_equals() {
    static constexpr std::string_view kClauses[] = {
        "dims",    "dtype",   "layout", "scale",   "score",     "mask",     "sink", "align",
        "dropout", "outputs", "grad",   "lengths", "normalize", "quantize", "shard"};
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

  // The word that begins this clause, if it declares a tensor or param, in the form that it has.
  bool report_declaration() {
    struct Form {
      std::string_view word, help;
    };
    static constexpr Form kForms[] = {
        {"tensor", "a tensor is declared as in `tensor bias: f32[Hq, Skv];`"},
        {"learn", "a learned tensor is declared as in `learn bias: f32[Hq, Skv];`"},
        {"param",
         "a number of each call is declared as in `param w: i32;`, a constant of the plan as in "
         "`attention f(w = 3) {`"}};
    if (!expects("':'") && !expects("'['")) return false;
    constexpr std::size_t kLongestBegin = 4;
    for (std::size_t back = 1; back <= kLongestBegin && back <= at_; ++back) {
      if (!opens_clause(at_ - back)) continue;
      const auto* form = std::ranges::find(kForms, text(at_ - back), &Form::word);
      if (form == std::end(kForms)) return false;
      put(Code::syntax, at_).help = form->help;
      return true;
    }
    return false;
  }

  // The text from token `at` to the end of the clause, or "..." if it is long.
  std::string_view value_text(std::size_t at) const {
    constexpr std::size_t kLongest = 40;
    std::size_t end = at;
    while (end + 1 < tokens_.all.size() && kind(end) != "';'" && kind(end) != "'}'") ++end;
    if (end == at) return "...";
    const std::string_view value =
        sink_.source().text().substr(span(at).begin, span(end - 1).end - span(at).begin);
    return value.size() <= kLongest && value.find('\n') == value.npos ? value : "...";
  }

  bool opens_clause(std::size_t at) const {
    if (std::ranges::find(kClauseWords, kind(at)) == kClauseWords.end() || at == 0) return false;
    return kind(at - 1) == "';'" || kind(at - 1) == "'{'" || kind(at - 1) == "'}'" ||
           tokens_.all[at].starts_line;
  }

  // Whether the token is in a clause that this word begins.
  bool is_in_clause(std::size_t at, std::string_view word) const {
    while (at-- > 0 && kind(at) != "';'" && kind(at) != "'{'" && kind(at) != "'}'") {
      if (opens_clause(at)) return kind(at) == word;
    }
    return false;
  }

  const Foreign* foreign(std::size_t at) const { return find_foreign(text(at)); }

  bool report_foreign() {
    const bool at_top = expects("'attention'");
    if (!expects_operator() && !expects_expression() && !at_top) return false;
    if (report_arrow() || report_unequal() || report_range()) return true;
    // In `not x` and `return x`, the first word is parsed as a name.
    const bool first =
        at_ > 0 && expects_operator() && foreign(at_ - 1) && kind(at_ - 1) == "IDENT";
    const std::size_t at = first ? at_ - 1 : at_;
    const Foreign* found = foreign(at);
    if (!found) return false;
    if (text(at) == "." && report_module(at)) return true;
    const std::string method = text(at) == "." ? method_help(at) : "";
    auto& diagnostic = unexpected(span(at), method.empty() ? std::string(found->help) : method);
    diagnostic.add_replacement(span(at), found->operator_here);
    condition(at, diagnostic);
    return true;
  }

  // `np.where(...)` and `jax.nn.silu(x)`, at the first dot.
  bool report_module(std::size_t at) {
    if (at == 0 || !contains(kModules, text(at - 1))) return false;
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
  std::string method_help(std::size_t at) const {
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
  bool report_arrow() {
    if (text(at_) != "=" || at_ + 1 >= tokens_.all.size()) return false;
    const bool arrow = text(at_ + 1) == ">" && span(at_ + 1).begin == span(at_).end;
    if (!arrow) return false;
    unexpected({span(at_).begin, span(at_ + 1).end}, "did you mean `>=`?")
        .add_replacement({span(at_).begin, span(at_ + 1).end}, ">=");
    return true;
  }

  // `<>` for `!=`.
  bool report_unequal() {
    if (text(at_) != ">" || at_ == 0 || text(at_ - 1) != "<") return false;
    const support::Span sign{span(at_ - 1).begin, span(at_).end};
    if (span(at_ - 1).end != span(at_).begin) return false;
    unexpected(sign, "write `!=`").add_replacement(sign, "!=");
    return true;
  }

  // In `j in range(8):`, range(8) is parsed as the lower bound.
  bool report_range() {
    if (!expects("'..'") || text(at_) != ":") return false;
    for (std::size_t i = at_; i-- > 0 && kind(i) != "'in'" && kind(i) != "';'";) {
      if (text(i) != "range") continue;
      unexpected(span(i), std::string(foreign(i)->help));
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

  diag::Diagnostic& put(Code code, std::size_t at) {
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

  std::string help(std::size_t at) const {
    const bool is_list = at > 0 && (kind(at - 1) == "'outputs'" || kind(at - 1) == "'grad'");
    if (kind(at) == "';'" && is_list) {
      return fmt::format("list them, as in `{};`, or omit the clause",
                         kind(at - 1) == "'grad'" ? "grad q, k, v" : "outputs o, lse");
    }
    const bool is_outputs = is_in_clause(at, "'outputs'");
    if ((is_outputs || is_in_clause(at, "'grad'")) && kind(at) != "EOF" &&
        !tokens_.all[at].starts_line) {
      if (is_word(kind(at))) return "separate names by commas";
      return is_outputs
                 ? "outputs are names, such as `o` and `lse`: compute with them after the call"
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

  // Help for the line with `attention`.
  std::string head_help(std::size_t at) const {
    if (expects("'attention'") && text(at) == "Attention") return "did you mean `attention`?";
    if (at == 0) return "";
    if (kind(at - 1) == "'attention'") return "a spec has a name: `attention name {`";
    const bool after_name = at > 1 && kind(at - 2) == "'attention'" && expects("'{'");
    if (after_name && text(at) == "-") return "a name consists of letters, digits and `_`";
    const bool is_parameter = text(at) == ":" && expects("')'") && expects("'='");
    return is_parameter ? "parameters of a spec have no types: `name = value`" : "";
  }

  // fn f() { q_idx >= kv_idx }
  std::string body_help(std::size_t at) const {
    if (text(at) == "," && expects("'='")) return assignments(at - 1);
    if (text(at) == ":" && expects("'='")) return "remove the annotation: `name = value`";
    return "the body of a function has `name = value` lines and ends with `return`";
  }

  // `x, y = a, b` from token `at` on, split into assignments of one name.
  std::string assignments(std::size_t at) const {
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

  // Whether `at` is in a function body where `name =` or `return` is expected.
  bool in_body(std::size_t at) const {
    if (!expects("'='") && !expects("'return'")) return false;
    std::size_t i = std::max<std::size_t>(at, 1) - 1;
    const auto ends = [&] { return kind(i) == "';'" || kind(i) == "'}'"; };
    while (i > 0 && kind(i) != "'{'" && !ends()) --i;
    while (i > 0 && kind(i) != "'fn'" && !ends()) --i;
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

std::string_view foreign_help(std::string_view word) {
  const Foreign* found = find_foreign(word);
  return found ? found->help : "";
}

void report_syntax_error(const Tokens& tokens, std::size_t at,
                         const std::vector<std::string>& expected, diag::Sink& sink) {
  SyntaxError(tokens, at, expected, sink).report();
}

}  // namespace attn::ast
