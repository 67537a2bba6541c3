#include "compiler/ir/random_dropout.h"

#include <gtest/gtest.h>

namespace attn::ir {
namespace {

TEST(RandomDropout, ProbabilitiesThatRoundTo0Or1AreRefused) {
  Attention attention;
  EXPECT_TRUE(check_random_dropout(attention).ok());
  for (const double p : {0.0, 0x1p-16, 0.5, 0.99998}) {
    attention.dropout = Dropout{p, {}, {}};
    EXPECT_TRUE(check_random_dropout(attention).ok()) << p;
  }
  for (const double p : {1e-300, 0x1.fffp-17, 1 - 0x1p-16, 0.999999}) {
    attention.dropout = Dropout{p, {}, {}};
    const Status refused = check_random_dropout(attention);
    ASSERT_FALSE(refused.ok()) << p;
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
    attention.dropout->keep = ExprId{0};
    EXPECT_TRUE(check_random_dropout(attention).ok()) << p;
  }
}

}  // namespace
}  // namespace attn::ir
