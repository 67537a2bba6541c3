#include "compiler/codegen/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/text.h"
#include "compiler/rewrite/simplify.h"
#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::codegen {
namespace {

using ::testing::ElementsAre;

ir::Attention attention_of(const std::string& score) {
  const sema::Analyzed analyzed = sema::analyze_body(
      "dims B = 1, Hq = 2, Sq = 64, D = 8; tensor w: f32[64]; tensor t: f32[Hq, 64]; score " +
      score + ";");
  EXPECT_TRUE(analyzed.attention.has_value()) << analyzed.text;
  return analyzed.attention ? rewrite::simplify(*analyzed.attention) : ir::Attention{};
}

struct Found {
  std::size_t turns = 0;
  std::vector<std::string> features{};
  std::string rest{};
};
Found found(const std::string& score) {
  ir::Attention attention = attention_of(score);
  const auto sum = turned_sum(attention.dag, attention.score);
  if (!sum) return {};
  Found found{sum->terms.size(), {}, ir::to_source(attention, sum->rest)};
  for (const ir::ExprId id : sum->features) found.features.push_back(ir::to_source(attention, id));
  return found;
}

TEST(Turns, TermsFollowFromWhatTheyShare) {
  const Found is = found("score + sum(m in 0..32: t[h, m] * relu(w[m] * log(q_idx - kv_idx) + m))");
  EXPECT_EQ(is.turns, 32u);
  EXPECT_THAT(is.features, ElementsAre("log(q_idx - kv_idx)"));
  EXPECT_EQ(is.rest, "score");
}

TEST(Turns, WhatFollowsFromAnotherIsNoFeature) {
  const Found is = found(
      "score + sum(m in 0..32: w[m] * tanh(m * sqrt(q_idx + kv_idx)) + "
      "exp(w[m] + 0.5 * sqrt(q_idx + kv_idx)))");
  EXPECT_EQ(is.turns, 0u);  // two terms each: of two loops
  const Found one = found(
      "score + sum(m in 0..32: tanh(m * sqrt(q_idx + kv_idx)) * "
      "exp(w[m] + 0.5 * sqrt(q_idx + kv_idx)))");
  EXPECT_THAT(one.features, ElementsAre("sqrt(q_idx + kv_idx)"));
}

TEST(Turns, TermsThatDependOnScoresOrIndicesAreLeft) {
  EXPECT_EQ(found("sum(m in 0..32: w[m] * tanh(score * m))").turns, 0u);
  EXPECT_EQ(found("score + sum(m in 0..32: t[h, m + q_idx % 2] * cos(w[m] + 1))").turns, 0u);
  EXPECT_EQ(found("score + sum(m in 0..32: w[m] * cos(w[m] + m))").turns, 0u);  // no features
  EXPECT_EQ(found("score + sum(m in 0..4: w[m] * log(q_idx + 1))").turns, 0u);  // few
}

}  // namespace
}  // namespace attn::codegen
