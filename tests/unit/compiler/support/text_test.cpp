#include "compiler/support/text.h"

#include <gtest/gtest.h>

namespace attn::support {
namespace {

TEST(Text, CodePointsAreWellFormedOrOneByte) {
  EXPECT_EQ(code_point_bytes("a"), 1U);
  EXPECT_EQ(code_point_bytes("\xC3\xA4"), 2U);
  EXPECT_EQ(code_point_bytes("\xF0\x9F\x99\x82"), 4U);
  EXPECT_EQ(code_point_bytes("\xC0\x80"), 1U);          // overlong
  EXPECT_EQ(code_point_bytes("\xE0\x80\x80"), 1U);      // overlong
  EXPECT_EQ(code_point_bytes("\xED\xA0\x80"), 1U);      // surrogate
  EXPECT_EQ(code_point_bytes("\xF4\x90\x80\x80"), 1U);  // beyond Unicode
  EXPECT_EQ(code_point_bytes("\xE2\x89"), 1U);          // cut off
}

TEST(Text, WhatCannotBeShownIsEscaped) {
  EXPECT_EQ(quoted("q_idx"), "`q_idx`");
  EXPECT_EQ(quoted("\xE2\x89\xA5"), "`\xE2\x89\xA5`");
  EXPECT_EQ(quoted("\xFF\n"), "`\\xff\\x0a`");
  EXPECT_EQ(quoted("\xC2\x9B"), "`\\xc2\\x9b`");  // a terminal's control sequence
  EXPECT_LE(support::quoted(std::string(1000, 'x')).size(), 60U);
}

TEST(Text, AlternativesAreListed) {
  const std::string_view words[] = {"a", "b", "c"};
  EXPECT_EQ(one_of(words), "`a`, `b` or `c`");
  EXPECT_EQ(one_of(std::span(words, 1)), "`a`");
}

TEST(Text, TheNearestWordIsFoundWithinReason) {
  const std::string_view words[] = {"window", "score", "kv_idx", "q_idx"};
  EXPECT_EQ(nearest("windw", words), "window");
  EXPECT_EQ(nearest("socre", words), "score");
  EXPECT_EQ(nearest("kv_id", words), "kv_idx");
  EXPECT_EQ(nearest("temperature", words), "");
  EXPECT_EQ(nearest("x", words), "");
  const std::string_view letters[] = {"b", "h"};
  EXPECT_EQ(nearest("x", letters), "");  // nothing is left of it
  const std::string_view swapped[] = {"ab_dcfe_hg", "abc_ef_gh", "abdcef_gh"};
  EXPECT_EQ(nearest("abcdef_gh", swapped), "abc_ef_gh");
  EXPECT_EQ(nearest(std::string(100'000, 'q'), words), "");
}

}  // namespace
}  // namespace attn::support
