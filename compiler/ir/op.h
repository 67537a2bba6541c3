// Operations and types of expressions. Everything here is derived from ops.def.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace attn::ir {

// Value types: integers are 32-bit two's complement, wide integers 64-bit (elements of i64 tensors,
// and what is computed of them), reals are real numbers (double in the reference evaluator, f32 in
// kernels).
enum class Type : std::uint8_t { boolean, integer, wide, real };

enum class Op : std::uint8_t {
#define ATTN_OP(name, id, operands, rule, attribute, doc) name##_,
#include "compiler/ir/ops.def"
#undef ATTN_OP
};

// How an operation's result type follows from its operands' types.
enum class Rule : std::uint8_t {
  boolean_leaf,   // () -> boolean
  integer_leaf,   // () -> integer
  wide_leaf,      // () -> wide
  real_leaf,      // () -> real
  symbol_type,    // (integer...) -> the type the named symbol was declared with
  arithmetic,     // (t, ..) -> t, for t integer, wide or real
  real_function,  // (real, ..) -> real
  comparison,     // (t, t) -> boolean, for t integer, wide or real
  logic,          // (boolean, ..) -> boolean
  selection,      // (boolean, t, t) -> t
  bits,           // (t, ..) -> t, for t integer or wide
  to_real,        // (integer, wide or boolean) -> real
  to_int,         // (boolean) -> integer
  truncate,       // (real) -> integer
  widen,          // (integer) -> wide
  narrow,         // (wide) -> integer
};

enum class AttributeKind : std::uint8_t { none, boolean, integer, real, symbol };

struct OpInfo {
  std::string_view name;
  int id;        // permanent
  int operands;  // -1: any number
  Rule rule;
  AttributeKind attribute;
  std::string_view doc;
};

const OpInfo& info(Op op);
std::span<const Op> all_ops();
std::optional<Op> parse_op(std::string_view name);

std::string_view to_string(Type type);  // "bool", "int", "wide", "real"
std::optional<Type> parse_type(std::string_view text);

// Most bits that integers of the type may be shifted by.
inline int most_shift(Type type) { return type == Type::wide ? 63 : 31; }
inline bool is_integral(Type type) { return type == Type::integer || type == Type::wide; }

// The result type of a rule other than symbol_type, or nullopt if the operands do not fit.
std::optional<Type> result_type(Rule rule, std::span<const Type> operands);

}  // namespace attn::ir
