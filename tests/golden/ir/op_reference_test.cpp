// The generated tables in the manuals.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/ir/attention.h"
#include "compiler/ir/real_function.h"
#include "tests/support/golden.h"

namespace attn::ir {
namespace {

std::string_view rule_text(Rule rule) {
  switch (rule) {
    case Rule::boolean_leaf: return "() -> bool";
    case Rule::integer_leaf: return "() -> int";
    case Rule::wide_leaf: return "() -> wide";
    case Rule::real_leaf: return "() -> real";
    case Rule::symbol_type: return "(int ...) -> as declared";
    case Rule::arithmetic: return "(t, ...) -> t; t int, wide or real";
    case Rule::real_function: return "(real, ...) -> real";
    case Rule::comparison: return "(t, t) -> bool; t int, wide or real";
    case Rule::logic: return "(bool, ...) -> bool";
    case Rule::selection: return "(bool, t, t) -> t";
    case Rule::bits: return "(t, ...) -> t; t int or wide";
    case Rule::to_real: return "(int, wide or bool) -> real";
    case Rule::to_int: return "(bool) -> int";
    case Rule::truncate: return "(real) -> int";
    case Rule::widen: return "(int) -> wide";
    case Rule::narrow: return "(wide) -> int";
  }
  return {};
}

std::string_view attribute_text(AttributeKind kind) {
  switch (kind) {
    case AttributeKind::none: return "";
    case AttributeKind::boolean: return "bool";
    case AttributeKind::integer: return "int";
    case AttributeKind::real: return "real";
    case AttributeKind::symbol: return "name";
  }
  return {};
}

std::string_view support_text(const RealFunction& function) {
  if (!function.is_in_cudnn()) return "not proven";
  return function.is_composed() ? "composed of others" : "";
}

// A table of every op.
std::string op_reference() {
  std::string table =
      "| id | op | operands | types | carries | meaning |\n|---|---|---|---|---|---|\n";
  for (Op op : all_ops()) {
    const OpInfo& row = info(op);
    table += fmt::format("| {} | `{}` | {} | {} | {} | {} |\n", row.id, row.name,
                         row.operands < 0 ? "any" : std::to_string(row.operands),
                         rule_text(row.rule), attribute_text(row.attribute), row.doc);
  }
  return table;
}

std::string function_reference() {
  std::string table = "| functions of reals | | in cuDNN's kernels |\n|---|---|---|\n";
  for (const RealFunction& function : real_functions()) {
    const OpInfo& row = info(function.op);
    table += fmt::format("| `{}({})` | {} | {} |\n", row.name, row.operands == 1 ? "x" : "x, y",
                         row.doc, support_text(function));
  }
  return table;
}

using attn::testing::expect_table;

TEST(OpReference, IsThatOfOpsDef) { expect_table("docs/ir.md", "ops", op_reference()); }

TEST(FunctionReference, IsThatOfRealFunctionsDef) {
  expect_table("docs/language.md", "functions", function_reference());
}

}  // namespace
}  // namespace attn::ir
