
#include <gtest/gtest.h>

#include "compiler/ast/print.h"
#include "tests/unit/compiler/ast/parsing.h"

namespace attn::ast {
namespace {

const std::string kLong(40, 'x');

TEST(Wrap, ShortLinesStay) {
  EXPECT_EQ(wrap("", 10), "");
  const std::string fits = std::string(42, 'a') + " + " + std::string(44, 'b');
  EXPECT_EQ(wrap(fits, 10), fits);  // and the `;` in column 100
}

TEST(Wrap, BreaksAtTheLoosestOperator) {
  EXPECT_EQ(wrap(kLong + " + 1 && " + kLong + " + 22", 10),
            kLong + " + 1\n          && " + kLong + " + 22");
  EXPECT_EQ(wrap(kLong + " + 1 && (" + kLong + " || " + kLong + ")", 4),
            kLong + " + 1\n    && (" + kLong + " || " + kLong + ")");
}

TEST(Wrap, BreaksBehindCommas) {
  const std::string start = "where(" + std::string(30, 'x') + " < 1, " + kLong + " - 1,";
  EXPECT_EQ(wrap(start + " 0 + 1)", 10), start + "\n" + std::string(16, ' ') + "0 + 1)");
}

TEST(Wrap, LinesBeginBehindTheirParenthesis) {
  const std::string a(40, 'a'), b(40, 'b'), c(40, 'c');
  const auto lines = [](std::size_t column, const std::string& line) {
    return "\n" + std::string(column, ' ') + line;
  };
  EXPECT_EQ(wrap("f(" + a + ", g(" + b + ", " + c + "), 1)", 4),
            "f(" + a + "," + lines(6, "g(" + b + ", " + c + "), 1)"));
  EXPECT_EQ(wrap("x && (" + a + " + g[" + b + " + 1 + " + c + "] + 2 || y)", 4),
            "x" + lines(4, "&& (" + a) + lines(8, "+ g[" + b + " + 1") +
                lines(12, "+ " + c + "] + 2 || y)"));
  EXPECT_EQ(wrap(std::string(50, 'x') + "(" + a + ", " + b + ")", 4),
            std::string(50, 'x') + "(" + a + "," + lines(55, b + ")"));
  EXPECT_EQ(wrap(std::string(76, 'x') + "(" + a + ", " + b + ")", 4),
            std::string(76, 'x') + "(" + a + "," + lines(4, b + ")"));
}

TEST(Wrap, SignsAreNoPlacesToBreak) {
  const std::string text = std::string(86, 'a') + " * -" + kLong;
  EXPECT_EQ(wrap(text, 10), std::string(86, 'a') + "\n          * -" + kLong);
}

TEST(Wrap, WhatCannotBeBrokenStays) {
  const std::string name(200, 'a');
  EXPECT_EQ(wrap(name, 10), name);
  EXPECT_EQ(wrap(name + " + b", 10), name + "\n          + b");
  EXPECT_EQ(wrap("b + " + name, 10), "b\n          + " + name);
  EXPECT_EQ(wrap(name, 300), name);
}

TEST(Wrap, LinesOfAClauseKeepTheWidthAndTheTree) {
  std::string sum = "t[b, kv_idx]";
  for (int i = 0; i < 60; ++i) sum += " + where(q_idx < " + std::to_string(i) + ", -score, score)";
  const Parsed parsed = parse_text("attention f { score " + sum + "; }");
  ASSERT_TRUE(parsed.spec);
  const std::string dsl = to_dsl(*parsed.spec);
  std::size_t longest = 0;
  for (std::size_t at = 0; at < dsl.size();) {
    const std::size_t end = dsl.find('\n', at);
    longest = std::max(longest, end - at);
    at = end + 1;
  }
  EXPECT_LE(longest, kColumns);
  EXPECT_GT(longest, 60U);
  const Parsed again = parse_text(dsl);
  ASSERT_TRUE(again.spec) << again.text;
  EXPECT_EQ(to_json(*again.spec), to_json(*parsed.spec));
}

}  // namespace
}  // namespace attn::ast
