// The syntax tree of a spec, with source positions. DSL text and JSON parse to the same tree.
//
// Only the grammar has been checked: names may be unknown, words invalid and types wrong. Nodes own
// their children. Depth is bounded (kMaxDepth), so recursion over a tree is safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/support/source.h"

namespace attn::ast {

using support::Span;

// Parsers reject deeper expressions.
inline constexpr std::uint32_t kMaxDepth = 500;

// A word and its span.
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
  Span span;  // including its parentheses, if any
  Span head;  // of the name or the first operator
  std::string text;
  std::vector<Operator> operators;
  std::vector<Expr> operands;
  bool grouped = false;     // parenthesized (always true in JSON); does not change the meaning
  std::uint32_t depth = 1;  // 1 + that of the deepest operand
};

// Returns an expression whose span covers `head` and the operands; computes its depth.
Expr make_expr(ExprKind kind, Span head, std::string text, std::vector<Operator> operators,
               std::vector<Expr> operands);

struct DimEntry {
  Name name;
  std::optional<Expr> size;  // absent: left open
  std::vector<Expr> set{};   // or a set of sizes, one plan for each
};
struct DimsClause {
  std::vector<DimEntry> entries;
};
// `k: e4m3`
struct DtypeEntry {
  Name tensor;
  Name dtype;
};
struct DtypeClause {
  Name dtype;
  std::vector<DtypeEntry> entries{};
};
struct LayoutArgument {
  std::optional<Name> name;
  Expr value;
};
struct LayoutEntry {
  std::optional<Name> tensor;  // absent: the layout of q, k, v and o
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
  Name path;  // without quotes; the span includes them
};
struct OutputsClause {
  std::vector<Name> outputs;
};
struct AlignClause {
  Name align;
};
struct NormalizeClause {
  Name by;
};
struct WeightClause {
  Expr value;
};
struct PrologueClause {
  Name tensor;  // "q" or "k"
  Expr value;
};
// Begins the clauses of an attention of several: `branch far: k = k_far, v = v_far;`.
struct BranchInput {
  Name tensor;  // "q", "k" or "v"
  Name by;
};
struct BranchClause {
  Name name;
  std::vector<BranchInput> inputs{};
};
// The clause's keyword is `epilogue`, `gate` or `combine`.
struct EpilogueClause {
  Expr value;
};
// `o: bf16` or `scale_s = 256`: one of the two.
struct QuantizeEntry {
  Name name;
  std::optional<Name> dtype{};
  std::optional<Expr> fallback{};
};
struct QuantizeClause {
  Name by;
  std::optional<Name> of{};  // `kv(head)`: what has a scale
  std::vector<QuantizeEntry> entries{};
};
struct ShardClause {
  Name axis;
};
// `values k[0..512];`: v is these columns of k.
struct ValuesClause {
  Name tensor;
  Expr first, end;
};
// `gather chosen, count;`: the keys that a row sees, by captured tensors.
struct GatherClause {
  Name keys;
  std::optional<Name> counts{};
};
// A clause that is unknown. Its words are kept, so that names it may define are
// not reported as unknown.
struct OtherClause {
  std::vector<std::string> words;
};

// The `#` comments around a node. A line is a comment including its `#`, or empty for blank lines;
// normalize_comments (comments.h) defines the canonical form.
using CommentLines = std::vector<std::string>;
struct Comments {
  CommentLines above;  // including comments inside the node
  std::string beside;  // after the node on its last line, or empty
};

struct Clause {
  Span span;
  Name keyword;
  std::variant<DimsClause, DtypeClause, LayoutClause, TensorClause, ParamClause, LetClause,
               ScaleClause, ScoreClause, MaskClause, OutputsClause, AlignClause, SinkClause,
               DropoutClause, LengthsClause, GradClause, DeterministicClause, NormalizeClause,
               QuantizeClause, ShardClause, WeightClause, PrologueClause, EpilogueClause,
               BranchClause, ValuesClause, GatherClause, FunctionClause, ImportClause, OtherClause>
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
  bool is_library = false;       // no attention, only a preamble
  std::vector<Clause> preamble;  // functions and imports above the attention
  std::vector<SpecParameter> parameters;
  std::vector<Clause> clauses;  // in text order
  Span span;
  Comments comments{};   // of its opening line
  CommentLines end{};    // below the last clause
  CommentLines below{};  // after the closing brace
  std::string schema{};  // the value of "$schema" in JSON
  // Tensors whose values the caller gives: what is wrong with their defaults does not matter.
  std::set<std::string, std::less<>> replaced{};
};

// Adds `offset` bytes to every span in the tree.
void shift(Spec& spec, std::uint32_t offset);

}  // namespace attn::ast
