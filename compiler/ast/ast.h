// What was written, with places. One tree for both surfaces: DSL text and JSON.
//
// Nothing is checked here beyond the grammar: names may be unknown, words may be wrong, types may
// not fit. Values own their children; depth is bounded (kMaxDepth), so recursion over a tree is
// safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/support/source.h"

namespace attn::ast {

using support::Span;

// Parsers refuse deeper expressions.
inline constexpr std::uint32_t kMaxDepth = 500;

// A word and its place.
struct Name {
  std::string text;
  Span span;
};

enum class Operator : std::uint8_t {
#define ATTN_OPERATOR(name, spelling, arity, precedence) name,
#include "compiler/ast/operators.def"
#undef ATTN_OPERATOR
};

std::string_view spelling(Operator op);
int arity(Operator op);
int precedence(Operator op);
bool is_comparison(Operator op);
std::optional<Operator> parse_operator(std::string_view spelling, int arity);

enum class ExprKind : std::uint8_t {
  number,   // text is its spelling
  boolean,  // text is "true" or "false"
  name,     // text
  unary,    // operators[0], operands[0]
  binary,   // operators[0], operands[0..1]
  compare,  // a < b <= c: one operator fewer than operands
  call,     // text(operands...)
  index,    // text[operands...]
  reduce,   // text(operands[0] in operands[1]..operands[2]: operands[3]); operands[0] is a name
  list,     // [operands...]: the default of a tensor, nothing else
};

struct Expr {
  ExprKind kind = ExprKind::number;
  Span span;  // with its own parentheses, if it has them
  Span head;  // of the name or the first operator
  std::string text;
  std::vector<Operator> operators;
  std::vector<Expr> operands;
  bool grouped = false;     // written in parentheses (always, in JSON); not part of the tree
  std::uint32_t depth = 1;  // 1 + that of the deepest operand
};

// An expression over `operands`; the span covers them and `head`, depth follows.
Expr make_expr(ExprKind kind, Span head, std::string text, std::vector<Operator> operators,
               std::vector<Expr> operands);

struct DimEntry {
  Name name;
  std::optional<Expr> size;  // left open without one
  std::vector<Expr> set{};   // or one plan for each of these
};
struct DimsClause {
  std::vector<DimEntry> entries;
};
struct DtypeClause {
  Name dtype;
};
struct LayoutArgument {
  std::optional<Name> name;
  Expr value;
};
struct LayoutEntry {
  std::optional<Name> tensor;  // all of q, k, v, o without one
  Name kind;                   // "bshd", ..., "strides"
  std::vector<LayoutArgument> arguments;
};
struct LayoutClause {
  std::vector<LayoutEntry> entries;
};
// `monotone`, `runs(8)`
struct Fact {
  Name name;
  std::vector<Expr> arguments{};
};
// The clause's keyword is `tensor` or `learn`.
struct TensorClause {
  Name name;
  Name dtype;
  std::vector<Expr> extents;
  std::vector<Fact> facts{};
  std::optional<Expr> fallback{};
};
struct ParamClause {
  Name name;
  Name dtype;
};
struct LetClause {
  Name name;
  Expr value;
};
struct ScaleClause {
  Expr value;
};
struct ScoreClause {
  Expr value;
};
struct MaskClause {
  Expr value;
};
struct SinkClause {
  Expr value;
};
struct DropoutClause {
  Expr probability;
  std::optional<Expr> keep;
};
struct LengthsEntry {
  Name side;
  std::optional<Expr> fallback;
};
struct LengthsClause {
  std::vector<LengthsEntry> entries;
};
struct GradClause {
  std::vector<Name> tensors;
};
struct DeterministicClause {};
struct FunctionClause {
  Name name;
  std::vector<Name> parameters;
  std::vector<LetClause> lets;  // of a body in braces
  Expr value;
};
struct ImportClause {
  Name path;  // without its quotes; the span covers them
};
struct OutputsClause {
  std::vector<Name> outputs;
};
struct AlignClause {
  Name align;
};
// A clause that is not built, or not known at all: its words, so that what it would have defined
// is not reported as missing.
struct OtherClause {
  std::vector<std::string> words;
};

// What stood in `#` comments around a node. A line is a comment with its `#`, or empty where blank
// lines were; normalize_comments (comments.h) says which of the many ways to write that is kept.
using CommentLines = std::vector<std::string>;
struct Comments {
  CommentLines above;  // those inside the node too
  std::string beside;  // behind it on its last line; empty without one
};

struct Clause {
  Span span;
  Name keyword;
  std::variant<DimsClause, DtypeClause, LayoutClause, TensorClause, ParamClause, LetClause,
               ScaleClause, ScoreClause, MaskClause, OutputsClause, AlignClause, SinkClause,
               DropoutClause, LengthsClause, GradClause, DeterministicClause, FunctionClause,
               ImportClause, OtherClause>
      body;
  Comments comments{};
};

// A constant of the spec: `attention f(window = 4096)`.
struct SpecParameter {
  Name name;
  std::optional<Expr> value;
};

struct Spec {
  Name name;
  bool is_library = false;       // there is no attention: the preamble is all
  std::vector<Clause> preamble;  // functions and imports above the attention
  std::vector<SpecParameter> parameters;
  std::vector<Clause> clauses;  // in text order
  Span span;
  Comments comments{};   // of the line that opens it
  CommentLines end{};    // below the last clause
  CommentLines below{};  // behind the closing brace
  std::string schema{};  // what "$schema" says in JSON
};

// Moves every place in the tree by `offset` bytes.
void shift(Spec& spec, std::uint32_t offset);

}  // namespace attn::ast
