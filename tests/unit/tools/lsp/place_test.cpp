#include "tools/lsp/place.h"

#include <gtest/gtest.h>

namespace attn::tools::lsp {
namespace {

// `text` with `|` where the cursor is.
Place place(std::string text) {
  const std::size_t cursor = text.find('|');
  text.erase(cursor, 1);
  const support::Source source("f.attn", text);
  return place_at(source.text(), ast::lex(source), static_cast<std::uint32_t>(cursor));
}

Expected inside(const std::string& clause) {
  return place("attention f(w = 3) {\n  dims Sq = 1;\n  " + clause + "\n}\n").expected;
}

TEST(Place, OfAFile) {
  EXPECT_EQ(place("|").expected, Expected::item);
  EXPECT_EQ(place("att|").expected, Expected::item);
  EXPECT_EQ(place("import \"ma|").expected, Expected::path);
  EXPECT_EQ(place("import \"masks.attn\";\n|").expected, Expected::item);
  EXPECT_EQ(place("# com|ment\n").expected, Expected::nothing);
  EXPECT_EQ(place("attention f { dims B = 1; }\n|").expected, Expected::item);
}

TEST(Place, OfAClause) {
  EXPECT_EQ(inside("|"), Expected::clause);
  EXPECT_EQ(inside("ma|"), Expected::clause);
  EXPECT_EQ(inside("dims B|"), Expected::dimension);
  EXPECT_EQ(inside("dims B = 1, |"), Expected::dimension);
  EXPECT_EQ(inside("dims B = {1, |};"), Expected::constant);
  EXPECT_EQ(inside("dims B = |;"), Expected::constant);
  EXPECT_EQ(inside("dtype |"), Expected::type);
  EXPECT_EQ(inside("layout |"), Expected::layout);
  EXPECT_EQ(inside("layout q: |"), Expected::layout_kind);
  EXPECT_EQ(inside("tensor t|"), Expected::nothing);
  EXPECT_EQ(inside("tensor t: |"), Expected::type);
  EXPECT_EQ(inside("tensor t: i32[|"), Expected::constant);
  EXPECT_EQ(inside("tensor t: i32[B] |"), Expected::fact);
  EXPECT_EQ(inside("tensor t: i32[B, Skv] = |"), Expected::element);
  EXPECT_EQ(inside("lengths q = |"), Expected::element);
  EXPECT_EQ(inside("param p: |"), Expected::type);
  EXPECT_EQ(inside("let x = |"), Expected::expression);
  EXPECT_EQ(inside("weight relu(|"), Expected::expression);
  EXPECT_EQ(inside("epilogue o * |"), Expected::expression);
  EXPECT_EQ(inside("gate sigmoid(|"), Expected::expression);
  EXPECT_EQ(inside("mask kv_idx < |"), Expected::expression);
  EXPECT_EQ(inside("mask kv_idx < 1|"), Expected::nothing);
  EXPECT_EQ(inside("align |"), Expected::choice);
  EXPECT_EQ(inside("outputs o, |"), Expected::output);
  EXPECT_EQ(inside("lengths |"), Expected::side);
  EXPECT_EQ(inside("grad q, |"), Expected::gradient);
  EXPECT_EQ(inside("mask kv_idx <\n  outputs |"), Expected::output);  // after a broken clause
}

TEST(Place, OfAFunctionKnowsItsNames) {
  const Place body = place("fn f(a: int, b) {\n  near = a < b\n  return |\n}\n");
  EXPECT_EQ(body.expected, Expected::expression);
  EXPECT_EQ(body.keyword, "fn");
  EXPECT_FALSE(body.in_attention);
  EXPECT_EQ(body.locals, (std::vector<std::string>{"a", "b", "near"}));
  EXPECT_EQ(place("fn f(a) = a * |;").locals, (std::vector<std::string>{"a"}));
}

TEST(Place, OfADefaultKnowsTheIndexesOfAnElement) {
  const Place found = place("attention f {\n  tensor t: i32[B, Skv] = |\n}\n");
  EXPECT_EQ(found.locals, (std::vector<std::string>{"i0", "i1"}));
}

TEST(Place, OfAReductionKnowsItsVariable) {
  const Place found = place("attention f {\n  mask any(j in 0..4: |\n}\n");
  EXPECT_EQ(found.locals, (std::vector<std::string>{"j"}));
  EXPECT_TRUE(found.in_attention);
}

}  // namespace
}  // namespace attn::tools::lsp
