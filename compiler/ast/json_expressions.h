// Reads expressions from JSON: numbers, names, and objects of an operation and its `args`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ast/ast.h"
#include "compiler/ast/json_text.h"

namespace attn::ast {

class JsonShape {
 public:
  // `is_clause`: whether a key is the keyword of a clause, for hints to keys in the wrong place.
  JsonShape(diag::Sink& sink, bool (*is_clause)(std::string_view))
      : sink_(sink), is_clause_(is_clause) {}

  bool failed() const { return failed_; }
  diag::Diagnostic& fail(support::Span span, std::string message,
                         diag::Code code = diag::Code::json_shape);
  // Each reports what it lacks, and `what` it is for.
  bool is(const JsonValue& json, JsonKind kind, std::string_view what);
  bool is_array(const JsonValue& json, std::string_view what);
  const JsonValue* need(const JsonValue& json, std::string_view key, std::string_view what);
  // Reports keys that are not among `known`, or come twice.
  void only(const JsonValue& json, const std::vector<std::string_view>& known);

  Name name(const JsonValue* json, std::string_view what);  // empty, if there is no value
  Name name(const std::string& text, support::Span span);
  std::vector<Name> names(const JsonValue& json, std::string_view what);

  Comments comments(const JsonValue& json);  // the keys `above` and `beside`
  CommentLines comment_lines(const JsonValue& json, std::string_view key);

 private:
  void unknown_key(const JsonMember& member, std::span<const std::string_view> known);
  std::string comment(const JsonValue& json);

  diag::Sink& sink_;
  bool (*is_clause_)(std::string_view);
  bool failed_ = false;
};

// Whether the text has the form of a name.
bool is_identifier(std::string_view text);

class JsonExpressions : public JsonShape {
 public:
  using JsonShape::JsonShape;

  Expr expr(const JsonValue& json);
  std::optional<Expr> optional_expr(const JsonValue& json);               // nullopt for null
  std::vector<Expr> exprs(const JsonValue& json, std::string_view what);  // at least one
  // An expression, or nested lists of expressions.
  Expr fallback(const JsonValue& json);

 private:
  Expr bare(const JsonValue& json);
  Expr quoted_number(const JsonValue& json);
  Expr operation(const JsonValue& json);
  // {"reduce": "any", "variable": "j", "from": 0, "to": 8, "value": ...}
  Expr reduction(const JsonValue& json, const JsonMember& reduce);
  // A spelling that JSON does not have: {"number": "0x10"}.
  Expr spelled_number(const JsonValue& json, const JsonMember& member);
  Expr operators(const JsonValue& sign, std::vector<Expr> operands);
  // A chain: {"compare": ["<=", "<"], "args": [a, b, c]}.
  Expr comparison(const JsonValue& signs, std::vector<Expr> operands);
};

}  // namespace attn::ast
