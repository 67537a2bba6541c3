#include "compiler/planner/measured.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/driver/driver.h"
#include "runtime/base/check.h"
#include "runtime/targets/targets.h"
#include "tests/support/contexts.h"

namespace attn::planner::measured_tests {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ir::Attention attention_of(const std::string& clauses) {
  const support::Source source("spec.attn", "attention a { " + clauses + " }");
  diag::Sink sink(source);
  auto attention = driver::front_end(source, {}, sink);
  ATTN_CHECK(attention.has_value(), diag::to_text(sink));
  return std::move(*attention);
}

constexpr const char* kDims = "dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = 4096, D = 128; ";
constexpr const char* kDecode = "dims B = 64, Hq = 32, Hkv = 8, Sq = 1, Skv = 8192, D = 128; ";

TEST(Measured, WhatTheTableHasRaisesNoDoubts) {
  for (const bool backward : {false, true}) {
    const target::Context context = attn::testing::in(backward);
    EXPECT_THAT(doubts_of(attention_of(kDims), context), IsEmpty());
    EXPECT_THAT(doubts_of(attention_of(std::string(kDims) + "mask q_idx >= kv_idx;"), context),
                IsEmpty());
  }
  const std::string pages = "layout k: paged(page = 16), v: paged(page = 16); ";
  EXPECT_THAT(doubts_of(attention_of(kDecode + pages + "lengths kv = Skv;"), {}), IsEmpty());
}

TEST(Measured, OtherGpusAreSaidToBeScaled) {
  target::Context context;
  context.gpu = target::gpu_of(targets::find_target("a100").value());
  EXPECT_THAT(doubts_of(attention_of(kDims), context), Contains(HasSubstr("scaled")));
}

TEST(Measured, KindsSizesAndFeaturesThatTheTableLacksAreSaid) {
  const auto doubts = [](const std::string& clauses, bool backward = false) {
    return doubts_of(attention_of(clauses), attn::testing::in(backward));
  };
  EXPECT_THAT(doubts("dims B = 1, Hq = 2, Sq = 4096, Skv = Sq, D = 8;"),
              Contains(HasSubstr("head dimensions from")));
  EXPECT_THAT(doubts("dims B = 1, Hq = 2, Hkv = 2, Sq = 1, Skv = 4194304, D = 128;"),
              Contains(HasSubstr("keys were measured")));
  EXPECT_THAT(doubts(std::string(kDims) + "normalize sigmoid; outputs o;"),
              Contains("not measured with sigmoid"));
  EXPECT_THAT(
      doubts(std::string(kDims) + "dtype e4m3; quantize per_tensor; outputs o, lse; grad q, k, v;",
             true),
      Contains(HasSubstr("nothing was measured of this kind: backward of 8 bits")));
}

TEST(Measured, ValuesThatAreAssumedAreSaid) {
  EXPECT_THAT(doubts_of(attention_of(std::string(kDecode) + "lengths kv;"), {}),
              Contains(HasSubstr("half")));
  EXPECT_THAT(doubts_of(attention_of(std::string(kDims) + "param n: i32; mask kv_idx < n;"), {}),
              Contains(HasSubstr("is assumed")));
}

}  // namespace
}  // namespace attn::planner::measured_tests
