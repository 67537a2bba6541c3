#include "compiler/passes/analysis/like_padding.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/compiler/passes/spec_example.h"

namespace attn::passes {
namespace {

// The number of comparisons in these clauses that cuDNN would mistake for padding.
std::size_t found(const std::string& clauses) {
  return like_padding(
             testing::of_clauses(64, 96,
                                 "tensor n: i32[B]; tensor of_heads: i32[Hq]; tensor real: f32[B]; "
                                 "param p: i32; " +
                                     clauses))
      .size();
}

TEST(LikePadding, NeedsComparisonsOfBothRowAndColumn) {
  EXPECT_EQ(found("mask q_idx < n[b] && kv_idx < n[b];"), 2U);
  EXPECT_EQ(found("mask q_idx < n[b]; mask kv_idx < p;"), 2U);
  EXPECT_EQ(found("mask of_heads[h] >= q_idx || kv_idx != n[b];"), 2U);
  EXPECT_EQ(found("mask kv_idx < n[b]; score where(q_idx < n[b], score, 0);"), 2U);
  EXPECT_EQ(found("mask q_idx < n[b] && q_idx >= of_heads[h];"), 0U);
  EXPECT_EQ(found("mask kv_idx < n[b];"), 0U);
}

TEST(LikePadding, OfRealsToo) {
  EXPECT_EQ(found("mask q_idx < real[b] && kv_idx < real[b];"), 2U);
  EXPECT_EQ(found("mask q_idx < real[b] && kv_idx < n[b];"), 2U);
}

TEST(LikePadding, NotOfConstantsSumsAndWhatVaries) {
  EXPECT_EQ(found("mask q_idx < 5 && kv_idx < n[b];"), 0U);
  EXPECT_EQ(found("mask q_idx + 3 < n[b] && kv_idx < n[b];"), 0U);
  EXPECT_EQ(found("mask max(q_idx, kv_idx) < n[b];"), 0U);
  EXPECT_EQ(found("tensor of_rows: i32[Sq]; mask kv_idx < of_rows[q_idx] && kv_idx < n[b];"), 0U);
}

TEST(LikePadding, OneOfThemBesideLengths) {
  EXPECT_EQ(found("lengths kv; mask q_idx < of_heads[h];"), 1U);
  EXPECT_EQ(found("lengths kv; mask kv_idx < of_heads[h];"), 1U);
  EXPECT_EQ(found("layout thd; mask q_idx < n[b];"), 1U);
  EXPECT_EQ(found("layout q: bshd, o: bshd, k: paged(page = 16), v: paged(page = 16); "
                  "mask q_idx < n[b];"),
            1U);
}

}  // namespace
}  // namespace attn::passes
