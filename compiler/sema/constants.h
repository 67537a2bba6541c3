// Compile-time arithmetic for sizes of dimensions, strides and spec parameters: 64-bit integers (a
// stride may exceed 32 bits) and reals, with the usual meaning of the operators.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "compiler/ast/ast.h"
#include "compiler/ast/number.h"
#include "compiler/diag/diagnostics.h"

namespace attn::sema {

struct Known {
  enum class State {
    value,
    open,     // depends on a dimension without a size; `dimension` names it
    poisoned  // an error was reported
  };
  State state = State::poisoned;
  ast::Number number{};
  std::string dimension;

  static Known of(ast::Number number) { return {State::value, number, {}}; }
  static Known open(std::string dimension) { return {State::open, {}, std::move(dimension)}; }
  static Known poisoned() { return {}; }
  // The value if it is an integer.
  std::optional<std::int64_t> integer() const;
};

// Returns the value of a name; reports errors.
using Lookup = std::function<Known(const std::string& name, support::Span span)>;

// Evaluates a constant. Reports unsupported operations, overflow and division by zero.
Known evaluate(const ast::Expr& expr, const Lookup& lookup, diag::Sink& sink);

}  // namespace attn::sema
