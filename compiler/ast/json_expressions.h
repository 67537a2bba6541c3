// Reads expressions from JSON: numbers, names, and objects of an operation and its `args`.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ast/json_shape.h"

namespace attn::ast {

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
