#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "compiler/ast/comments.h"
#include "compiler/ast/json_text.h"
#include "compiler/ast/number.h"
#include "compiler/ast/parse.h"
#include "compiler/support/text.h"

namespace attn::ast {
namespace {

using diag::Code;
using support::quoted;

bool is_identifier(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto more = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return !text.empty() && letter(text[0]) && std::ranges::all_of(text, more);
}

// The keywords of clauses, in the order in which they are looked for. `dtype` is also a key of
// others.
constexpr std::string_view kClauseKeys[] = {
    "tensor", "learn",         "param",     "let",      "fn",    "import", "dims",    "layout",
    "scale",  "score",         "mask",      "outputs",  "align", "sink",   "dropout", "lengths",
    "grad",   "deterministic", "normalize", "quantize", "shard", "dtype"};

bool is_clause(std::string_view key) {
  return std::ranges::find(kClauseKeys, key) != std::end(kClauseKeys);
}

class JsonBuilder {
 public:
  explicit JsonBuilder(diag::Sink& sink) : sink_(sink) {}

  std::optional<Spec> spec(const JsonValue& json) {
    Spec spec;
    spec.span = json.span;
    if (!is(json, JsonKind::object, "a spec")) return std::nullopt;
    spec.is_library = json.find("library") != nullptr;
    if (spec.is_library) {
      only(json, {"library", "preamble", "$schema", "below"});
    } else {
      only(json, {"attention", "preamble", "parameters", "clauses", "$schema", "above", "beside",
                  "end", "below"});
    }
    spec.comments = comments(json);
    spec.end = comment_lines(json, "end");
    spec.below = comment_lines(json, "below");
    if (const JsonMember* schema = json.find("$schema");
        schema && is(schema->value, JsonKind::string, "`$schema`")) {
      spec.schema = schema->value.text;
    }
    put_preamble(json, spec);
    if (!spec.is_library) attention(json, spec);
    if (failed_) return std::nullopt;
    normalize_comments(spec);
    return spec;
  }

 private:
  void put_preamble(const JsonValue& json, Spec& spec) {
    const JsonMember* preamble = json.find("preamble");
    if (!preamble || !is_array(preamble->value, "preamble")) return;
    for (const JsonValue& value : preamble->value.items) {
      spec.preamble.push_back(clause(value));
      const std::string& word = spec.preamble.back().keyword.text;
      if (failed_ || word == "fn" || word == "import") continue;
      fail(value.span, "the preamble may contain only `fn` and `import` items").help =
          "other clauses belong in `clauses`";
    }
  }

  void attention(const JsonValue& json, Spec& spec) {
    spec.name = name(need(json, "attention", "a spec"), "the attention");
    if (const JsonMember* parameters = json.find("parameters")) {
      spec.parameters = this->parameters(parameters->value);
    }
    if (const JsonValue* list = need(json, "clauses", "a spec");
        list && is_array(*list, "clauses")) {
      for (const JsonValue& item : list->items) {
        spec.clauses.push_back(clause(item));
        const Name& word = spec.clauses.back().keyword;
        if (word.text == "import") fail(word.span, "an import belongs in `preamble`");
      }
    }
  }

  diag::Diagnostic& fail(Span span, std::string message) {
    failed_ = true;
    return sink_.report(Code::json_shape, span, std::move(message));
  }

  bool is(const JsonValue& json, JsonKind kind, std::string_view what) {
    if (json.kind == kind) return true;
    fail(json.span,
         fmt::format("{} must be {}, found {}", what, in_words(kind), in_words(json.kind)));
    return false;
  }

  bool is_array(const JsonValue& json, std::string_view what) {
    return is(json, JsonKind::array, quoted(what));
  }

  const JsonValue* need(const JsonValue& json, std::string_view key, std::string_view what) {
    if (const JsonMember* member = json.find(key)) return &member->value;
    fail(json.span, fmt::format("{} needs the key {}", what, quoted(key)));
    return nullptr;
  }

  void only(const JsonValue& json, std::initializer_list<std::string_view> keys) {
    std::vector<std::string_view> seen;
    for (const JsonMember& member : json.members) {
      const std::span known(keys.begin(), keys.size());
      if (std::ranges::find(known, member.key) == known.end()) {
        unknown_key(member, known);
      } else if (std::ranges::find(seen, member.key) != seen.end()) {
        fail(member.key_span, fmt::format("duplicate key {}", quoted(member.key)));
      }
      seen.push_back(member.key);
    }
  }

  void unknown_key(const JsonMember& member, std::span<const std::string_view> known) {
    auto& diagnostic = fail(member.key_span, fmt::format("unknown key {}", quoted(member.key)));
    const auto is_known = [&](std::string_view key) {
      return std::ranges::find(known, key) != known.end();
    };
    if (is_clause(member.key) && is_known("clauses")) {
      diagnostic.help = fmt::format("a clause belongs in `clauses`: [{{\"{}\": ...}}]", member.key);
    } else if (is_clause(member.key) && is_clause(known.front())) {
      diagnostic.help = fmt::format("one object is one clause: {{\"{}\": ...}}, {{\"{}\": ...}}",
                                    known.front(), member.key);
    } else {
      const std::string_view close = support::nearest(member.key, known);
      diagnostic.help = close.empty() ? "expected " + support::one_of(known)
                                      : fmt::format("did you mean {}?", quoted(close));
      diagnostic.add_replacement(member.key_span, close);
    }
  }

  Name name(const JsonValue* json, std::string_view what) {
    if (!json || !is(*json, JsonKind::string, fmt::format("the name of {}", what))) return {};
    return name(json->text, json->span);
  }

  Name name(const std::string& text, Span span) {
    if (!is_identifier(text)) {
      auto& diagnostic = fail(span, fmt::format("{} is not a name", quoted(text)));
      diagnostic.help =
          "a string is one name; an expression is a tree: {\"op\": \"+\", \"args\": [\"score\", "
          "1]}";
    }
    return {text, span};
  }

  std::vector<SpecParameter> parameters(const JsonValue& json) {
    std::vector<SpecParameter> result;
    if (!is(json, JsonKind::object, "`parameters`")) return result;
    for (const JsonMember& member : json.members) {
      result.push_back({name(member.key, member.key_span), optional_expr(member.value)});
    }
    return result;
  }

  std::string comment(const JsonValue& json) {
    if (is(json, JsonKind::string, "a comment") && !is_comment(json.text)) {
      fail(json.span, "a comment must be one line that begins with `#`");
    }
    return json.text;
  }

  CommentLines comment_lines(const JsonValue& json, std::string_view key) {
    CommentLines lines;
    const JsonMember* member = json.find(key);
    if (!member || !is_array(member->value, key)) return lines;
    for (const JsonValue& item : member->value.items) {
      const bool blank_line = item.kind == JsonKind::string && item.text.empty();
      lines.push_back(blank_line ? "" : comment(item));
    }
    return lines;
  }

  Comments comments(const JsonValue& json) {
    const JsonMember* beside = json.find("beside");
    return {comment_lines(json, "above"), beside ? comment(beside->value) : ""};
  }

  // The clause keyword is a key of the object; `dtype` only if there is no other keyword.
  Clause clause(const JsonValue& json) {
    if (!is(json, JsonKind::object, "a clause")) return {};
    for (const std::string_view word : kClauseKeys) {
      if (const JsonMember* member = json.find(word)) return clause(json, *member);
    }
    const auto word = std::ranges::find_if(json.members, [](const JsonMember& member) {
      return member.key != "above" && member.key != "beside";
    });
    if (word != json.members.end()) return other(json, *word);
    fail(json.span, "a clause needs a key with its name");
    return {};
  }

  Clause clause(const JsonValue& json, const JsonMember& member) {
    Clause result{json.span, {member.key, member.key_span}, {}, comments(json)};
    const std::string& word = member.key;
    const JsonValue& value = member.value;
    if (word == "tensor" || word == "learn") {
      only(json, {word, "dtype", "shape", "facts", "default", "above", "beside"});
      result.body = tensor(json, value);
    } else if (word == "dropout") {
      only(json, {"dropout", "keep", "above", "beside"});
      const JsonMember* keep = json.find("keep");
      result.body =
          DropoutClause{expr(value), keep ? std::optional(expr(keep->value)) : std::nullopt};
    } else if (word == "quantize") {
      only(json, {"quantize", "with", "above", "beside"});
      result.body = quantize(json, value);
    } else if (word == "fn") {
      only(json, {"fn", "parameters", "lets", "value", "above", "beside"});
      result.body = function(json, value);
    } else if (word == "param") {
      only(json, {"param", "dtype", "above", "beside"});
      const JsonValue* dtype = need(json, "dtype", "a param");
      result.body = ParamClause{name(&value, "the param"), name(dtype, "its type")};
    } else if (word == "let") {
      only(json, {"let", "value", "above", "beside"});
      const JsonValue* bound = need(json, "value", "a let");
      result.body = LetClause{name(&value, "the let"), bound ? expr(*bound) : Expr{}};
    } else {
      only(json, {word, "above", "beside"});
      simple(result, value);
    }
    return result;
  }

  void simple(Clause& result, const JsonValue& value) {
    const std::string& word = result.keyword.text;
    if (word == "dims") result.body = dims(value);
    if (word == "layout") result.body = layout(value);
    if (word == "scale") result.body = ScaleClause{expr(value)};
    if (word == "score") result.body = ScoreClause{expr(value)};
    if (word == "mask") result.body = MaskClause{expr(value)};
    if (word == "outputs") result.body = OutputsClause{names(value, "outputs")};
    if (word == "sink") result.body = SinkClause{expr(value)};
    if (word == "lengths") result.body = lengths(value);
    if (word == "grad") result.body = GradClause{names(value, "grad")};
    if (word == "deterministic") result.body = deterministic(value);
    if (word == "import") result.body = import(value);
    if (word == "align") result.body = AlignClause{name(&value, "the alignment")};
    if (word == "shard") result.body = ShardClause{name(&value, "what is sharded")};
    if (word == "normalize") result.body = NormalizeClause{name(&value, "the normalization")};
    if (word == "dtype") result.body = DtypeClause{name(&value, "the type")};
  }

  DimsClause dims(const JsonValue& json) {
    DimsClause clause;
    if (!is(json, JsonKind::object, "`dims`")) return clause;
    for (const JsonMember& member : json.members) {
      DimEntry entry{name(member.key, member.key_span), std::nullopt, {}};
      if (member.value.kind == JsonKind::array) {
        entry.set = exprs(member.value, member.key);
      } else {
        entry.size = optional_expr(member.value);
      }
      clause.entries.push_back(std::move(entry));
    }
    return clause;
  }

  // "bshd", {"strides": [...]}, {"paged": {"page": 64}}, or one of them for each tensor:
  // {"q": "bshd", "k": ...}.
  LayoutClause layout(const JsonValue& json) {
    LayoutClause clause;
    if (json.kind == JsonKind::string || with_arguments(json)) {
      clause.entries.push_back(layout_entry(std::nullopt, json));
    } else if (is(json, JsonKind::object, "a layout")) {
      for (const JsonMember& member : json.members) {
        clause.entries.push_back(layout_entry(name(member.key, member.key_span), member.value));
      }
    }
    return clause;
  }

  LayoutEntry layout_entry(std::optional<Name> tensor, const JsonValue& json) {
    const JsonMember* kind = with_arguments(json);
    if (!kind) return {std::move(tensor), name(&json, "the layout"), {}};
    only(json, {kind->key});
    LayoutEntry entry{std::move(tensor), {kind->key, kind->key_span}, {}};
    const JsonValue& list = kind->value;
    if (list.kind == JsonKind::object) {
      for (const JsonMember& member : list.members) entry.arguments.push_back(argument(member));
    } else if (is_array(list, kind->key)) {
      for (const JsonValue& item : list.items) entry.arguments.push_back(argument(item));
    }
    if (entry.arguments.empty() && !failed_) {
      fail(list.span, fmt::format("{} must not be empty", quoted(kind->key)));
    }
    return entry;
  }

  // The member that holds a layout with arguments, or nullptr.
  static const JsonMember* with_arguments(const JsonValue& json) {
    for (const std::string_view kind : {"strides", "paged"}) {
      if (const JsonMember* member = json.find(kind)) return member;
    }
    return nullptr;
  }

  LayoutArgument argument(const JsonMember& member) {
    return {name(member.key, member.key_span), expr(member.value)};
  }

  // An argument in a list; a named one is {"page": 64}.
  LayoutArgument argument(const JsonValue& json) {
    const bool is_named =
        json.kind == JsonKind::object && json.members.size() == 1 && !json.find("number");
    if (is_named) return argument(json.members[0]);
    return {std::nullopt, expr(json)};
  }

  TensorClause tensor(const JsonValue& json, const JsonValue& value) {
    const JsonValue* dtype = need(json, "dtype", "a tensor");
    const JsonValue* shape = need(json, "shape", "a tensor");
    TensorClause clause{name(&value, "the tensor"), name(dtype, "its type"),
                        shape ? exprs(*shape, "shape") : std::vector<Expr>{}};
    if (const JsonMember* given = json.find("facts")) clause.facts = facts(given->value);
    if (const JsonMember* fallback = json.find("default")) {
      clause.fallback = this->fallback(fallback->value);
    }
    return clause;
  }

  // ["monotone", {"runs": [8]}]
  std::vector<Fact> facts(const JsonValue& json) {
    std::vector<Fact> list;
    if (!is_array(json, "facts")) return list;
    for (const JsonValue& item : json.items) {
      if (item.kind != JsonKind::object || item.members.size() != 1) {
        list.push_back({name(&item, "one of `facts`")});
        continue;
      }
      const JsonMember& member = item.members[0];
      list.push_back({name(member.key, member.key_span), exprs(member.value, "a fact")});
    }
    return list;
  }

  std::vector<Name> names(const JsonValue& json, std::string_view what) {
    std::vector<Name> list;
    if (!is_array(json, what)) return list;
    for (const JsonValue& item : json.items) {
      list.push_back(name(&item, fmt::format("one of {}", quoted(what))));
    }
    return list;
  }

  // {"q": null, "kv": default}
  LengthsClause lengths(const JsonValue& json) {
    LengthsClause clause;
    if (!is(json, JsonKind::object, "`lengths`")) return clause;
    for (const JsonMember& member : json.members) {
      clause.entries.push_back({name(member.key, member.key_span), std::nullopt});
      if (member.value.kind != JsonKind::null) {
        clause.entries.back().fallback = fallback(member.value);
      }
    }
    return clause;
  }

  // "per_tensor", beside "with": {"o": {"dtype": "bf16"}, "scale_s": 256}
  QuantizeClause quantize(const JsonValue& json, const JsonValue& value) {
    QuantizeClause clause{name(&value, "the quantization")};
    const JsonMember* with = json.find("with");
    if (!with || !is(with->value, JsonKind::object, "`with`")) return clause;
    for (const JsonMember& member : with->value.members) {
      QuantizeEntry entry{name(member.key, member.key_span)};
      if (const JsonMember* dtype = member.value.find("dtype")) {
        only(member.value, {"dtype"});
        entry.dtype = name(&dtype->value, "its type");
      } else {
        entry.fallback = fallback(member.value);
      }
      clause.entries.push_back(std::move(entry));
    }
    return clause;
  }

  // An expression, or nested lists of expressions.
  Expr fallback(const JsonValue& json) {
    if (json.kind != JsonKind::array) return expr(json);
    if (json.items.empty()) fail(json.span, "a list of elements must not be empty");
    std::vector<Expr> elements;
    for (const JsonValue& item : json.items) elements.push_back(fallback(item));
    Expr list = make_expr(ExprKind::list, json.span, "", {}, std::move(elements));
    list.span = json.span;
    return list;
  }

  DeterministicClause deterministic(const JsonValue& json) {
    if (json.kind != JsonKind::boolean || json.text != "true") {
      fail(json.span, "`deterministic` must be true or omitted");
    }
    return {};
  }

  ImportClause import(const JsonValue& json) {
    const bool is_path = is(json, JsonKind::string, "the path of an import") &&
                         json.text.find_first_of("\"\r\n") == std::string::npos;
    if (!is_path && !failed_) fail(json.span, "a path must not contain quotes or line breaks");
    return {{json.text, json.span}};
  }

  FunctionClause function(const JsonValue& json, const JsonValue& value) {
    FunctionClause clause;
    clause.name = name(&value, "the function");
    if (const JsonValue* parameters = need(json, "parameters", "a function")) {
      clause.parameters = names(*parameters, "parameters");
    }
    if (const JsonMember* lets = json.find("lets"); lets && is_array(lets->value, "lets")) {
      for (const JsonValue& item : lets->value.items) clause.lets.push_back(let(item));
    }
    if (const JsonValue* result = need(json, "value", "a function")) clause.value = expr(*result);
    return clause;
  }

  LetClause let(const JsonValue& json) {
    if (!is(json, JsonKind::object, "a let")) return {};
    only(json, {"let", "value"});
    const JsonValue* bound = need(json, "value", "a let");
    return {name(need(json, "let", "a let"), "the let"), bound ? expr(*bound) : Expr{}};
  }

  static void collect_words(const JsonValue& json, std::vector<std::string>& words) {
    if (json.kind == JsonKind::string) words.push_back(json.text);
    for (const JsonValue& item : json.items) collect_words(item, words);
    for (const JsonMember& member : json.members) {
      words.push_back(member.key);
      collect_words(member.value, words);
    }
  }

  static Clause other(const JsonValue& json, const JsonMember& word) {
    OtherClause body;
    for (const JsonMember& member : json.members) {
      if (&member != &word) body.words.push_back(member.key);
      collect_words(member.value, body.words);
    }
    return {json.span, {word.key, word.key_span}, std::move(body)};
  }

  std::optional<Expr> optional_expr(const JsonValue& json) {
    if (json.kind == JsonKind::null) return std::nullopt;
    return expr(json);
  }

  std::vector<Expr> exprs(const JsonValue& json, std::string_view what) {
    std::vector<Expr> result;
    if (!is_array(json, what)) return result;
    if (json.items.empty()) fail(json.span, fmt::format("{} must not be empty", quoted(what)));
    for (const JsonValue& item : json.items) result.push_back(expr(item));
    return result;
  }

  Expr expr(const JsonValue& json) {
    Expr result = bare(json);
    result.span = json.span;
    result.grouped = true;
    if (result.depth > kMaxDepth && !failed_) {
      sink_
          .report(Code::too_deep, json.span,
                  fmt::format("the expression is more than {} operations deep", kMaxDepth))
          .help = "move part of the expression into a `let`";
      failed_ = true;
    }
    return result;
  }

  Expr bare(const JsonValue& json) {
    switch (json.kind) {
      case JsonKind::number: return number(json.text, json.span);
      case JsonKind::boolean: return leaf(ExprKind::boolean, json.text, json.span);
      case JsonKind::string:
        if (is_quoted_number(json.text)) return quoted_number(json);
        return leaf(ExprKind::name, name(json.text, json.span).text, json.span);
      case JsonKind::object: return operation(json);
      default: break;
    }
    fail(json.span, fmt::format("an expression cannot be {}", in_words(json.kind)));
    return {};
  }

  static bool is_quoted_number(std::string_view text) {
    const bool negated = text.starts_with('-');
    if (negated) text.remove_prefix(1);
    return parse_number(text, negated).has_value();
  }

  Expr quoted_number(const JsonValue& json) {
    fail(json.span, fmt::format("{} is in quotes, which are for names", quoted(json.text))).help =
        fmt::format("write a number without quotes: {}", json.text);
    return {};
  }

  static Expr leaf(ExprKind kind, std::string text, Span span) {
    return make_expr(kind, span, std::move(text), {}, {});
  }

  static Expr number(const std::string& text, Span span) {
    if (!text.starts_with('-')) return leaf(ExprKind::number, text, span);
    std::vector<Expr> operands;
    operands.push_back(leaf(ExprKind::number, text.substr(1), {span.begin + 1, span.end}));
    return make_expr(ExprKind::unary, {span.begin, span.begin + 1}, "", {Operator::negate},
                     std::move(operands));
  }

  Expr operation(const JsonValue& json) {
    if (const JsonMember* member = json.find("number")) return spelled_number(json, *member);
    if (const JsonMember* member = json.find("reduce")) return reduction(json, *member);
    for (const std::string_view form : {"op", "compare", "call", "index"}) {
      const JsonMember* member = json.find(form);
      if (!member) continue;
      only(json, {form, "args"});
      const JsonValue* list = need(json, "args", "an operation");
      if (!list || !is_array(*list, "args")) return {};
      std::vector<Expr> operands;
      for (const JsonValue& item : list->items) operands.push_back(expr(item));
      if (form == "op") return operators(member->value, std::move(operands));
      if (form == "compare") return comparison(member->value, std::move(operands));
      const ExprKind kind = form == "call" ? ExprKind::call : ExprKind::index;
      if (kind == ExprKind::index && operands.empty()) fail(list->span, "an index needs `args`");
      return make_expr(
          kind, member->value.span,
          name(&member->value, kind == ExprKind::call ? "the function" : "the tensor").text, {},
          std::move(operands));
    }
    auto& diagnostic = fail(json.span, "this object is not an expression");
    diagnostic.help = "an operation has the key `op`, `compare`, `call` or `index`, and `args`";
    return {};
  }

  // {"reduce": "any", "variable": "j", "from": 0, "to": 8, "value": ...}
  Expr reduction(const JsonValue& json, const JsonMember& reduce) {
    only(json, {"reduce", "variable", "from", "to", "value"});
    const JsonValue* variable = need(json, "variable", "a reduction");
    if (!variable) return {};
    std::vector<Expr> operands;
    operands.push_back(leaf(ExprKind::name, name(variable, "the variable").text, variable->span));
    for (const char* key : {"from", "to", "value"}) {
      const JsonValue* part = need(json, key, "a reduction");
      if (!part) return {};
      operands.push_back(expr(*part));
    }
    return make_expr(ExprKind::reduce, reduce.value.span, name(&reduce.value, "the reduction").text,
                     {}, std::move(operands));
  }

  // A spelling that JSON does not have: {"number": "0x10"}.
  Expr spelled_number(const JsonValue& json, const JsonMember& member) {
    only(json, {"number"});
    const JsonValue& value = member.value;
    if (!is(value, JsonKind::string, "`number`")) return {};
    if (!parse_number(value.text, true))  // a minus may stand before it
      fail(value.span, fmt::format("{} is not a number", quoted(value.text)));
    return leaf(ExprKind::number, value.text, value.span);
  }

  Expr operators(const JsonValue& sign, std::vector<Expr> operands) {
    if (!is(sign, JsonKind::string, "`op`")) return {};
    const auto op = parse_operator(sign.text, static_cast<int>(operands.size()));
    if (!op) {
      auto& diagnostic =
          fail(sign.span, fmt::format("{} is not an operator with {} operand{}", quoted(sign.text),
                                      operands.size(), operands.size() == 1 ? "" : "s"));
      if (is_identifier(sign.text)) diagnostic.help = "a function has the key `call`";
      return {};
    }
    const ExprKind kind = arity(*op) == 1      ? ExprKind::unary
                          : is_comparison(*op) ? ExprKind::compare
                                               : ExprKind::binary;
    return make_expr(kind, sign.span, "", {*op}, std::move(operands));
  }

  // A chain: {"compare": ["<=", "<"], "args": [a, b, c]}.
  Expr comparison(const JsonValue& signs, std::vector<Expr> operands) {
    if (!is_array(signs, "compare")) return {};
    std::vector<Operator> chain;
    for (const JsonValue& sign : signs.items) {
      if (!is(sign, JsonKind::string, "a comparison")) return {};
      const auto op = parse_operator(sign.text, 2);
      if (!op || !is_comparison(*op)) {
        fail(sign.span, fmt::format("{} is not a comparison", quoted(sign.text)));
        return {};
      }
      chain.push_back(*op);
    }
    if (chain.empty() || chain.size() + 1 != operands.size()) {
      fail(signs.span, "`compare` needs one operator between adjacent `args`");
      return {};
    }
    const Span head = signs.items[0].span;
    return make_expr(ExprKind::compare, head, "", std::move(chain), std::move(operands));
  }

  diag::Sink& sink_;
  bool failed_ = false;
};

}  // namespace

std::optional<Spec> parse_json(const support::Source& source, diag::Sink& sink) {
  if (!is_readable(source, sink)) return std::nullopt;
  const std::optional<JsonValue> json = read_json(source, sink);
  if (!json) return std::nullopt;
  return JsonBuilder(sink).spec(*json);
}

}  // namespace attn::ast
