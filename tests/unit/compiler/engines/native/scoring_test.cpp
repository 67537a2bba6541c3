#include "compiler/engines/native/scoring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::native {
namespace {

using masks::testing::of_clauses;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kScale = 0.35355339059327373;  // 1 / sqrt(8)

ir::Attention scored(const std::string& score) {
  return of_clauses(64, 64,
                    "tensor t: f32[Hq]; tensor c_of: f32[Skv]; param c: f32; score " + score + ";");
}

struct Found {
  std::string root;
  double weight;
  bool scaled;
};
Found found(const std::string& score) {
  const ir::Attention attention = scored(score);
  const Scoring scoring = scoring_of(attention);
  return {ir::to_source(attention, scoring.root), scoring.weight, scoring.scaled};
}

void expect(const std::string& score, const std::string& root, double weight, bool scaled) {
  const Found is = found(score);
  EXPECT_EQ(is.root, root);
  EXPECT_NEAR(is.weight, weight, 1e-12) << score;
  EXPECT_EQ(is.scaled, scaled) << score;
}

TEST(Scoring, ConstantFactorsAloneAreTakenOff) {
  const ir::Attention attention = scored("2.0 * (3.0 * tanh(score)) ");
  const Scoring scoring = without_factors(attention);
  EXPECT_EQ(ir::to_source(attention, scoring.root), "tanh(score)");
  EXPECT_NEAR(scoring.weight, 6, 1e-12);
  EXPECT_TRUE(scoring.scaled);
  EXPECT_EQ(without_factors(scored("score + 1.0")).weight, 1);
}

TEST(Scoring, DivisorsOfWeightsAreTakenOff) {
  ir::Attention attention = scored("2.0 * tanh(score) / 64.0");
  EXPECT_EQ(without_factors(attention).weight, 1);
  attention.normalize = ir::Normalize::linear;
  const Scoring scoring = without_factors(attention);
  EXPECT_EQ(ir::to_source(attention, scoring.root), "tanh(score)");
  EXPECT_NEAR(scoring.weight, 1.0 / 32, 1e-12);
}

TEST(Scoring, ASiluIsTakenOffLinearWeights) {
  ir::Attention attention = scored("3.0 * silu(2.0 * score + t[h]) / 64.0");
  EXPECT_EQ(scoring_of(attention).silu, std::nullopt);
  attention.normalize = ir::Normalize::linear;
  const Scoring scoring = scoring_of(attention);
  EXPECT_NEAR(scoring.silu.value_or(0), 3.0 / 64, 1e-12);
  EXPECT_EQ(ir::to_source(attention, scoring.root), "2.0 * score");
  EXPECT_NEAR(scoring.weight, kScale, 1e-12);
  EXPECT_EQ(scoring.addends.size(), 1u);
  EXPECT_FALSE(scoring.scaled);
}

TEST(Scoring, TheScaleIsAFactorOfHomogeneousScores) {
  expect("score * score", "score * score", kScale * kScale, false);
  expect("score * t[h]", "score * t[h]", kScale, false);
  expect("where(q_idx > kv_idx, abs(score), -score)", "where(q_idx > kv_idx, abs(score), -score)",
         kScale, false);
}

TEST(Scoring, OtherScoresAreScaledFirst) {
  expect("tanh(score) + c_of[kv_idx]", "tanh(score) + c_of[kv_idx]", 1, true);
  expect("where(q_idx > kv_idx, score, score * score)",
         "where(q_idx > kv_idx, score, score * score)", 1, true);
  expect("score / (1.0 + abs(score))", "score / (1.0 + abs(score))", 1, true);
}

TEST(Scoring, ConstantFactorsAreTakenOff) {
  expect("30.0 * tanh(score / 30.0)", "tanh(score / 30.0)", 30, true);
  expect("-30.0 * tanh(score)", "-30.0 * tanh(score)", 1, true);
}

// The addends of a score with their signs, each divided by what the root is to be multiplied by.
std::vector<std::string> addends(const std::string& score) {
  const ir::Attention attention = scored(score);
  std::vector<std::string> texts;
  for (const Addend& addend : scoring_of(attention).addends) {
    texts.push_back((addend.negative ? "-" : "+") + ir::to_source(attention, addend.expression));
  }
  return texts;
}

TEST(Scoring, LinearAddendsAreTakenOff) {
  expect("score + t[h]", "score", kScale, false);
  EXPECT_THAT(addends("score + t[h]"), ElementsAre("+t[h]"));
  EXPECT_NEAR(scoring_of(scored("score + t[h]")).addend_factor, 1 / kScale, 1e-12);
  expect("c * q_idx + tanh(score) - t[h] * kv_idx", "tanh(score)", 1, true);
  EXPECT_THAT(addends("c * q_idx + tanh(score) - t[h] * kv_idx"),
              ElementsAre("-t[h] * kv_idx", "+c * q_idx"));
  EXPECT_THAT(addends("t[h] - score"), IsEmpty());
  EXPECT_THAT(addends("score + c_of[kv_idx]"), IsEmpty());
  EXPECT_THAT(addends("score + abs(kv_idx - q_idx)"), IsEmpty());
}

TEST(Scoring, BoundsFollowFromFunctionsThatHaveThem) {
  EXPECT_EQ(scoring_of(scored("30.0 * tanh(score / 30.0)")).bound, 30);
  EXPECT_EQ(scoring_of(scored("score * score")).bound, std::nullopt);
  EXPECT_EQ(scoring_of(scored("tanh(score) + t[h]")).bound, std::nullopt);
}

std::vector<std::string> lines(const std::string& score) {
  ir::Attention attention = scored(score);
  std::vector<std::string> texts;
  for (const Line& line : lines_of(attention, attention.score)) {
    texts.push_back(ir::to_source(attention, line.expression) + ": " +
                    ir::to_source(attention, line.slope));
  }
  return texts;
}

TEST(Lines, AreTheLargestLinearParts) {
  EXPECT_THAT(lines("score + c * (kv_idx - q_idx) + 1.0"),
              ElementsAre(::testing::StartsWith("c * ")));
  EXPECT_EQ(lines("score * kv_idx").size(), 1U);
  EXPECT_EQ(lines("score + t[h] * kv_idx - kv_idx / 2.0").size(), 2U);
}

TEST(Lines, NothingElseIs) {
  EXPECT_THAT(lines("score + t[h]"), IsEmpty());
  EXPECT_THAT(lines("score + c_of[kv_idx]"), IsEmpty());
  EXPECT_THAT(lines("score + abs(kv_idx - q_idx)"), IsEmpty());
  EXPECT_THAT(lines("score + kv_idx // 2"), IsEmpty());
}

}  // namespace
}  // namespace attn::engines::native
