// A part of a test in a process of its own: what a process has loaded, such as a driver, it keeps.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

namespace attn::testing {

// Executes this program again, with the current test alone, and expects that `body` fails nothing
// there. That process ends after it, without the fixture's TearDown.
template <typename Body>
void expect_in_own_process(const Body& body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        body();
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace attn::testing
