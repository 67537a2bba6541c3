// Converts the operators and functions of the language to IR. Promotion follows Python: booleans
// count as 0 and 1, integers become real next to a real and wide next to a wide integer, `/` is
// real, `//` and `%` round down.
// Checks operand types, and expands composite functions.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/dag.h"

namespace attn::sema {

inline constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();

// What an expression reads, as a bit set.
enum Uses : std::uint16_t {
  kConstants = 0,
  kScore = 1,
  kHeads = 2,  // the batch and head indexes
  kRows = 4,   // the query index
  kTensors = 8,
  kParams = 16,
  kLearned = 32,   // learned tensors; set together with kTensors
  kKeys = 64,      // the key index
  kResult = 128,   // an element of o, in an epilogue
  kSums = 256,     // sums along keys; set together with kTensors
  kElement = 512,  // elements and sums of a row of q or k, in a prologue
  kColumn = 1024,  // the column of an element, in both
  kBranch = 2048,  // an element of the o of a branch, where branches are combined
  kIndexes = kHeads | kRows | kKeys
};

// A checked expression. Depth and size are those of the expression expanded to a tree.
struct Value {
  ir::ExprId id = 0;
  ir::Type type = ir::Type::real;
  std::uint16_t uses = kConstants;
  std::uint32_t depth = 1;
  std::uint64_t size = 1;
};

// "a boolean", "an integer", "a real": for messages.
std::string_view in_words(ir::Type type);

// An expression with `&&` and `||` for `&` and `|` between its comparisons, where these have no
// parentheses; and the edits that make it of the source. Empty if it has none, or in JSON, or if
// the text is long.
struct Logical {
  std::string text;
  std::vector<diag::Edit> edits;
};
Logical with_logical_signs(const ast::Expr& expr, const diag::Sink& sink);

// Help for `&`, `|` or `^` between two comparisons, with names instead of them.
std::string with_parentheses(std::string_view sign);

std::vector<std::string_view> function_names();

class Operations {
 public:
  Operations(ir::Dag& dag, diag::Sink& sink) : dag_(dag), sink_(sink) {}

  // The value of a unary, binary, compare or call expression, given its operands; nullopt after
  // reporting an error. The name of a call must be one of function_names().
  std::optional<Value> apply(const ast::Expr& expr, std::span<const Value> operands);

  // The reduction `any`, `all`, `sum`, `min` or `max` of `values`, of which there must be at least
  // one. Reports values of the wrong type.
  std::optional<Value> reduce(const ast::Expr& expr, std::span<const Value> values);

  Value leaf(ir::ExprId id, std::uint16_t uses) const { return {id, dag_[id].type, uses, 1, 1}; }
  Value build(ir::Op op, std::initializer_list<Value> operands) {
    return build(op, std::span(operands.begin(), operands.size()));
  }
  Value build(ir::Op op, std::span<const Value> operands);
  Value to_real(const Value& value);
  // A number that is not a real, in 64 bits.
  Value to_wide(const Value& value);
  // An index, which has 32 bits: one out of range stays out of range.
  Value narrowed(const Value& value);
  // The lower 32 bits of a wide integer, as an integer.
  Value lower_half(const Value& value);
  // The position in the spec's own file; for a span in another file, that of the outermost call.
  ir::SourcePos place(support::Span span) const;
  void set_outermost_call(support::Span call) { outermost_call_ = call; }
  // The comparison whose operands are applied next, or null; returns the one before.
  const ast::Expr* set_comparison(const ast::Expr* comparison) {
    return std::exchange(comparison_, comparison);
  }

 private:
  using Operands = std::span<const Value>;
  using Outcome = std::optional<Value>;
  using Handler = Outcome (Operations::*)(ir::Op, Operands);
  struct Function {
    std::string_view name;
    std::size_t fewest;
    std::size_t most;
    Handler handler;
    ir::Op op;
  };
  static std::span<const Function> functions();
  friend std::vector<std::string_view> function_names();

  Outcome unary(Operands operands);
  Outcome binary(Operands operands);
  Outcome compare(Operands operands);
  Outcome call(Operands operands);

  // The handlers of functions.def and of the operators.
  Outcome arithmetic(ir::Op op, Operands operands);
  Outcome quotient(ir::Op op, Operands operands);
  Outcome select(ir::Op op, Operands operands);
  Outcome extremum(ir::Op op, Operands operands);
  Outcome clamp(ir::Op op, Operands operands);
  Outcome arithmetic_function(ir::Op op, Operands operands);
  Outcome rounding(ir::Op op, Operands operands);
  Outcome truncation(ir::Op op, Operands operands);
  Outcome widening(ir::Op op, Operands operands);
  Outcome conversion(ir::Op op, Operands operands);
  Outcome real_function(ir::Op op, Operands operands);
  Outcome power(ir::Op op, Operands operands);
  Outcome integer_power(const Value& base, std::int64_t exponent);
  Outcome gelu(ir::Op op, Operands operands);
  Outcome silu(ir::Op op, Operands operands);
  Outcome relu(ir::Op op, Operands operands);
  Outcome softplus(ir::Op op, Operands operands);
  Outcome is_nan(ir::Op op, Operands operands);
  Outcome logic(ir::Op op, Operands operands);
  Outcome bits(ir::Op op, Operands operands);
  Outcome complement(ir::Op op, Operands operands);
  Outcome shift(ir::Op op, Operands operands);
  Value negate(const Value& value);

  Value to_number(const Value& value);
  std::vector<Value> unified(Operands operands);
  Value real(double value);
  bool is_zero(const Value& value) const;
  static bool are_integers(Operands operands);
  bool need_booleans(Operands operands);
  void mixed_bits(Operands operands);
  bool explain_precedence(diag::Diagnostic& diagnostic);
  bool explain_power(Operands operands, diag::Diagnostic& diagnostic);
  diag::Diagnostic& report(diag::Code code, support::Span span, std::string message);

  ir::Dag& dag_;
  diag::Sink& sink_;
  const ast::Expr* at_ = nullptr;  // the current expression
  const ast::Expr* comparison_ = nullptr;
  support::Span outermost_call_;
};

}  // namespace attn::sema
