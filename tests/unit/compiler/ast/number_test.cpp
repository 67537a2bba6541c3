#include "compiler/ast/number.h"

#include <gtest/gtest.h>

#include <string>

namespace attn::ast {
namespace {

TEST(Numbers, IntegersHaveNoPoint) {
  EXPECT_EQ(parse_number("0"), Number(std::int64_t{0}));
  EXPECT_EQ(parse_number("1_000"), Number(std::int64_t{1000}));
  EXPECT_EQ(parse_number("0x1F"), Number(std::int64_t{31}));
  EXPECT_EQ(parse_number("9223372036854775807"), Number(std::int64_t{INT64_MAX}));
}

TEST(Numbers, BehindAMinusTheLeastOf64BitsIsOne) {
  EXPECT_EQ(parse_number("9223372036854775808", true), Number(std::int64_t{INT64_MIN}));
  EXPECT_EQ(parse_number("0x8000_0000_0000_0000", true), Number(std::int64_t{INT64_MIN}));
  EXPECT_EQ(parse_number("9223372036854775809", true), std::nullopt);
  EXPECT_EQ(parse_number("0x-1", true), std::nullopt);
  EXPECT_EQ(parse_number("-1", true), std::nullopt);
  EXPECT_EQ(parse_number("0.5", true), Number(-0.5));
}

TEST(Numbers, RealsDo) {
  EXPECT_EQ(parse_number("0.5"), Number(0.5));
  EXPECT_EQ(parse_number(".5"), Number(0.5));
  EXPECT_EQ(parse_number("5."), Number(5.0));
  EXPECT_EQ(parse_number("1e-5"), Number(1e-5));
  EXPECT_EQ(parse_number("2E+3"), Number(2000.0));
}

TEST(Numbers, OtherTextIsNone) {
  for (const char* text :
       {"",      "x",  "-1",    "+1",   "1x",   "0x",   "0x-1", "1e",  "1__0",
        "_1",    "1_", "1_.5",  "1._5", "1_e5", "0_x1", "inf",  "nan", "9223372036854775808",
        "1e999", ".",  "1.2.3", " 1"}) {
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace attn::ast
