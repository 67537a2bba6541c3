#include "compiler/ast/json_expressions.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/comments.h"
#include "compiler/ast/number.h"
#include "compiler/support/text.h"

namespace attn::ast {
namespace {

using support::quoted;
using support::Span;

bool is_quoted_number(std::string_view text) {
  const bool negated = text.starts_with('-');
  if (negated) text.remove_prefix(1);
  return parse_number(text, negated).has_value();
}

Expr leaf(ExprKind kind, std::string text, Span span) {
  return make_expr(kind, span, std::move(text), {}, {});
}

Expr number(const std::string& text, Span span) {
  if (!text.starts_with('-')) return leaf(ExprKind::number, text, span);
  std::vector<Expr> operands;
  operands.push_back(leaf(ExprKind::number, text.substr(1), {span.begin + 1, span.end}));
  return make_expr(ExprKind::unary, {span.begin, span.begin + 1}, "", {Operator::negate},
                   std::move(operands));
}

}  // namespace

using support::quoted;

bool is_identifier(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto more = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return !text.empty() && letter(text[0]) && std::ranges::all_of(text, more);
}

diag::Diagnostic& JsonShape::fail(support::Span span, std::string message, diag::Code code) {
  failed_ = true;
  return sink_.report(code, span, std::move(message));
}

bool JsonShape::is(const JsonValue& json, JsonKind kind, std::string_view what) {
  if (json.kind == kind) return true;
  fail(json.span,
       fmt::format("{} must be {}, found {}", what, in_words(kind), in_words(json.kind)));
  return false;
}

bool JsonShape::is_array(const JsonValue& json, std::string_view what) {
  return is(json, JsonKind::array, quoted(what));
}

const JsonValue* JsonShape::need(const JsonValue& json, std::string_view key,
                                 std::string_view what) {
  if (const JsonMember* member = json.find(key)) return &member->value;
  fail(json.span, fmt::format("{} needs the key {}", what, quoted(key)));
  return nullptr;
}

void JsonShape::only(const JsonValue& json, const std::vector<std::string_view>& known) {
  std::vector<std::string_view> seen;
  for (const JsonMember& member : json.members) {
    if (std::ranges::find(known, member.key) == known.end()) {
      unknown_key(member, known);
    } else if (std::ranges::find(seen, member.key) != seen.end()) {
      fail(member.key_span, fmt::format("duplicate key {}", quoted(member.key)));
    }
    seen.push_back(member.key);
  }
}

void JsonShape::unknown_key(const JsonMember& member, std::span<const std::string_view> known) {
  auto& diagnostic = fail(member.key_span, fmt::format("unknown key {}", quoted(member.key)));
  const auto is_known = [&](std::string_view key) {
    return std::ranges::find(known, key) != known.end();
  };
  if (is_clause_(member.key) && is_known("clauses")) {
    diagnostic.help = fmt::format("a clause belongs in `clauses`: [{{\"{}\": ...}}]", member.key);
  } else if (is_clause_(member.key) && is_clause_(known.front())) {
    diagnostic.help = fmt::format("one object is one clause: {{\"{}\": ...}}, {{\"{}\": ...}}",
                                  known.front(), member.key);
  } else {
    const std::string_view close = support::nearest(member.key, known);
    diagnostic.help = close.empty() ? "expected " + support::one_of(known)
                                    : fmt::format("did you mean {}?", quoted(close));
    diagnostic.add_replacement(member.key_span, close);
  }
}

Name JsonShape::name(const JsonValue* json, std::string_view what) {
  if (!json || !is(*json, JsonKind::string, fmt::format("the name of {}", what))) return {};
  return name(json->text, json->span);
}

Name JsonShape::name(const std::string& text, support::Span span) {
  if (!is_identifier(text)) {
    auto& diagnostic = fail(span, fmt::format("{} is not a name", quoted(text)));
    diagnostic.help =
        "a string is one name; an expression is a tree: {\"op\": \"+\", \"args\": [\"score\", "
        "1]}";
  }
  return {text, span};
}

std::vector<Name> JsonShape::names(const JsonValue& json, std::string_view what) {
  std::vector<Name> list;
  if (!is_array(json, what)) return list;
  for (const JsonValue& item : json.items) {
    list.push_back(name(&item, fmt::format("one of {}", quoted(what))));
  }
  return list;
}

std::string JsonShape::comment(const JsonValue& json) {
  if (is(json, JsonKind::string, "a comment") && !is_comment(json.text)) {
    fail(json.span, "a comment must be one line that begins with `#`");
  }
  return json.text;
}

CommentLines JsonShape::comment_lines(const JsonValue& json, std::string_view key) {
  CommentLines lines;
  const JsonMember* member = json.find(key);
  if (!member || !is_array(member->value, key)) return lines;
  for (const JsonValue& item : member->value.items) {
    const bool blank_line = item.kind == JsonKind::string && item.text.empty();
    lines.push_back(blank_line ? "" : comment(item));
  }
  return lines;
}

Comments JsonShape::comments(const JsonValue& json) {
  const JsonMember* beside = json.find("beside");
  return {comment_lines(json, "above"), beside ? comment(beside->value) : ""};
}

std::optional<Expr> JsonExpressions::optional_expr(const JsonValue& json) {
  if (json.kind == JsonKind::null) return std::nullopt;
  return expr(json);
}

std::vector<Expr> JsonExpressions::exprs(const JsonValue& json, std::string_view what) {
  std::vector<Expr> result;
  if (!is_array(json, what)) return result;
  if (json.items.empty()) fail(json.span, fmt::format("{} must not be empty", quoted(what)));
  for (const JsonValue& item : json.items) result.push_back(expr(item));
  return result;
}

Expr JsonExpressions::expr(const JsonValue& json) {
  Expr result = bare(json);
  result.span = json.span;
  result.grouped = true;
  if (result.depth > kMaxDepth && !failed()) {
    fail(json.span, fmt::format("the expression is more than {} operations deep", kMaxDepth),
         diag::Code::too_deep)
        .help = "move part of the expression into a `let`";
  }
  return result;
}

Expr JsonExpressions::fallback(const JsonValue& json) {
  if (json.kind != JsonKind::array) return expr(json);
  if (json.items.empty()) fail(json.span, "a list of elements must not be empty");
  std::vector<Expr> elements;
  for (const JsonValue& item : json.items) elements.push_back(fallback(item));
  Expr list = make_expr(ExprKind::list, json.span, "", {}, std::move(elements));
  list.span = json.span;
  return list;
}

Expr JsonExpressions::bare(const JsonValue& json) {
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

Expr JsonExpressions::quoted_number(const JsonValue& json) {
  fail(json.span, fmt::format("{} is in quotes, which are for names", quoted(json.text))).help =
      fmt::format("write a number without quotes: {}", json.text);
  return {};
}

Expr JsonExpressions::operation(const JsonValue& json) {
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

Expr JsonExpressions::reduction(const JsonValue& json, const JsonMember& reduce) {
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

Expr JsonExpressions::spelled_number(const JsonValue& json, const JsonMember& member) {
  only(json, {"number"});
  const JsonValue& value = member.value;
  if (!is(value, JsonKind::string, "`number`")) return {};
  if (!parse_number(value.text, true))  // a minus may stand before it
    fail(value.span, fmt::format("{} is not a number", quoted(value.text)));
  return leaf(ExprKind::number, value.text, value.span);
}

Expr JsonExpressions::operators(const JsonValue& sign, std::vector<Expr> operands) {
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

Expr JsonExpressions::comparison(const JsonValue& signs, std::vector<Expr> operands) {
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

}  // namespace attn::ast
