#include "runtime/base/check.h"

#include <gtest/gtest.h>

namespace attn {
namespace {

TEST(CheckDeathTest, SaysThatItIsABugAndWhatToSend) {
  EXPECT_EXIT(ATTN_CHECK(1 > 2, "one is more"), ::testing::ExitedWithCode(70),
              "attnc: internal error at .*check_test.cpp:[0-9]+: one is more \\(1 > 2\\)\n"
              "this is a bug in attnc, .*send the spec, the command");
}

TEST(Check, WhatHoldsIsSilent) { ATTN_CHECK(2 > 1, "two is more"); }

}  // namespace
}  // namespace attn
