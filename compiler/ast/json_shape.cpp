#include "compiler/ast/json_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/comments.h"
#include "compiler/support/text.h"

namespace attn::ast {

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

}  // namespace attn::ast
