#include <gtest/gtest.h>

#include "compiler/ast/print.h"
#include "tests/unit/compiler/ast/parsing.h"

namespace attn::ast {
namespace {

Parsed parse_clauses(const std::string& clauses) {
  return parse_text(R"({"attention": "f", "clauses": [)" + clauses + "]}", "x.attn.json");
}

std::string dsl(const std::string& expression) {
  const Parsed parsed = parse_clauses(R"({"mask": )" + expression + "}");
  return parsed.spec ? to_dsl(mask_of(parsed)) : parsed.text;
}

TEST(JsonExpressions, OfEveryKind) {
  EXPECT_EQ(dsl("1e-5"), "1e-5");
  EXPECT_EQ(dsl("-1"), "-1");
  EXPECT_EQ(dsl("true"), "true");
  EXPECT_EQ(dsl("\"q_idx\""), "q_idx");
  EXPECT_EQ(dsl(R"({"number": "0x10"})"), "0x10");
  EXPECT_EQ(dsl(R"({"op": "-", "args": ["x"]})"), "-x");
  EXPECT_EQ(dsl(R"({"op": "-", "args": ["x", -1]})"), "x - -1");
  EXPECT_EQ(dsl(R"({"op": "**", "args": [-1, 2]})"), "(-1) ** 2");
  EXPECT_EQ(dsl(R"({"args": [1, "x", 3], "compare": ["<=", "<"]})"), "1 <= x < 3");
  EXPECT_EQ(dsl(R"({"call": "f", "args": []})"), "f()");
  EXPECT_EQ(dsl(R"({"index": "t", "args": ["b", 0]})"), "t[b, 0]");
}

TEST(JsonExpressions, SpansAreThoseOfTheText) {
  const std::string text =
      R"({"attention": "f", "clauses": [{"mask": {"op": "<", "args": ["a", -1]}}]})";
  const Parsed parsed = parse_text(text, "x.attn.json");
  ASSERT_TRUE(parsed.spec) << parsed.text;
  const auto written = [&](Span span) { return text.substr(span.begin, span.end - span.begin); };
  const Expr& mask = mask_of(parsed);
  EXPECT_EQ(written(parsed.spec->name.span), "f");
  EXPECT_EQ(written(parsed.spec->clauses[0].keyword.span), "mask");
  EXPECT_EQ(written(mask.span), R"({"op": "<", "args": ["a", -1]})");
  EXPECT_EQ(written(mask.head), "<");
  EXPECT_EQ(written(mask.operands[0].span), "a");
  EXPECT_EQ(written(mask.operands[1].span), "-1");
}

TEST(JsonClauses, TheWordMayStandAnywhereInItsObject) {
  const Parsed parsed =
      parse_clauses(R"({"shape": ["B"], "dtype": "i32", "tensor": "t"}, {"value": 1, "let": "x"})");
  ASSERT_TRUE(parsed.spec) << parsed.text;
  EXPECT_EQ(to_dsl(*parsed.spec), "attention f {\n  tensor  t: i32[B];\n  let     x = 1;\n}\n");
}

TEST(JsonClauses, LayoutsInEveryForm) {
  const Parsed parsed = parse_clauses(
      R"({"layout": "bhsd"}, {"layout": {"strides": [1, 2, 3, 4]}},
         {"layout": {"q": "bshd", "k": {"strides": [4, 3, 2, 1]}}})");
  ASSERT_TRUE(parsed.spec) << parsed.text;
  EXPECT_EQ(to_dsl(*parsed.spec),
            "attention f {\n  layout  bhsd;\n  layout  strides(1, 2, 3, 4);\n"
            "  layout  q: bshd, k: strides(4, 3, 2, 1);\n}\n");
}

TEST(JsonClauses, AllThatIsWrongIsReported) {
  const Parsed parsed = parse_clauses(R"({"mask": null}, 3, {"let": "1x", "value": 2})");
  EXPECT_FALSE(parsed.spec);
  EXPECT_EQ(parsed.diagnostics.size(), 3U) << parsed.text;
}

TEST(JsonSpecs, NeedANameAndClauses) {
  EXPECT_EQ(parse_text("{}", "x.json").diagnostics.size(), 2U);
  EXPECT_EQ(parse_text("[]", "x.json").diagnostics.size(), 1U);
  EXPECT_TRUE(parse_text(R"({"$schema": "s", "attention": "f", "clauses": []})", "x.json").spec);
}

}  // namespace
}  // namespace attn::ast
