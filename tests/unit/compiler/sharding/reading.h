// Specs of tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "compiler/driver/driver.h"

namespace attn::sharding {

inline ir::Attention read(const std::string& clauses) {
  const support::Source source(
      "test.attn",
      "attention test { dims B = 2, Hq = 8, Hkv = 4, Sq = 64, D = 8; " + clauses + "}");
  diag::Sink sink(source);
  auto attention = driver::front_end(source, {}, sink);
  EXPECT_TRUE(attention.has_value()) << diag::to_text(sink);
  return attention ? *attention : ir::Attention();
}

}  // namespace attn::sharding
