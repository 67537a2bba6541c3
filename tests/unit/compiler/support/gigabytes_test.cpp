#include <gtest/gtest.h>

#include "compiler/support/text.h"

namespace attn::support {
namespace {

TEST(Excess, TellsTheAmountsApart) {
  EXPECT_EQ(excess(69e9, 0x1p36).amount, "69.0 GB");
  EXPECT_EQ(excess(69e9, 0x1p36).most, "68.7 GB");
  EXPECT_EQ(excess(100e9, 0x1p36).amount, "100 GB");
  EXPECT_EQ(excess(0x1p36 + 1, 0x1p36).amount, "68.719476737 GB");
  EXPECT_EQ(excess(0x1p36 + 1, 0x1p36).most, "68.719476736 GB");
}

}  // namespace
}  // namespace attn::support
