#include "compiler/engines/native/learned.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::native {
namespace {

using masks::testing::of_spec;
using ::testing::ElementsAre;

std::vector<LearnedPart> parts_of(const std::string& clauses) {
  const ir::Attention attention = of_spec(
      "attention a { dims B = 2, Hq = 8, Hkv = 2, Sq = 300, Skv = 400, D = 64; " + clauses + " }");
  return learned_parts(gradient::differentiate(attention));
}

// The reach of each part, and whether it is held.
std::vector<std::string> texts_of(const std::string& clauses) {
  std::vector<std::string> texts;
  for (const LearnedPart& part : parts_of(clauses)) {
    texts.push_back(fmt::format("{}{}", name_of(part.reach), part.held ? ", held" : ""));
  }
  return texts;
}

TEST(LearnedParts, WhatDependsOnTheScoreIsHeld) {
  EXPECT_THAT(texts_of("learn t: f32[Hq]; score score * t[h];"), ElementsAre("heads, held"));
  EXPECT_THAT(texts_of("learn t: f32[Hq]; score score + t[h] * (kv_idx - q_idx);"),
              ElementsAre("heads"));
  EXPECT_THAT(texts_of("learn t: f32[Hq]; score 3.0 * (score + exp(t[h]));"), ElementsAre("heads"));
  EXPECT_THAT(texts_of("learn t: f32[Hq]; score tanh(score + t[h]);"), ElementsAre("heads, held"));
}

TEST(LearnedParts, IndicesSayWhatScoresShare) {
  EXPECT_THAT(texts_of("learn t: f32[B, Sq]; score score + t[b, q_idx];"), ElementsAre("row"));
  EXPECT_THAT(texts_of("learn t: f32[Skv]; score score + t[kv_idx // 2];"), ElementsAre("column"));
  EXPECT_THAT(texts_of("learn t: f32[Hq, 700]; score score + t[h, q_idx - kv_idx + Skv];"),
              ElementsAre("diagonal"));
  EXPECT_THAT(texts_of("learn t: f32[32]; score score + t[min(abs(kv_idx - q_idx) // 8, 31)];"),
              ElementsAre("diagonal"));
  EXPECT_THAT(texts_of("learn t: f32[800]; score score + t[where(q_idx > kv_idx + 2, 1, 0)"
                       "+ min(q_idx, kv_idx) - q_idx + 400];"),
              ElementsAre("diagonal"));
  EXPECT_THAT(texts_of("learn t: f32[800]; score score + t[q_idx + kv_idx];"),
              ElementsAre("unknown"));
  EXPECT_THAT(texts_of("tensor d: i32[Skv]; learn t: f32[9]; score score + t[d[kv_idx]];"),
              ElementsAre("column"));
}

TEST(LearnedParts, ABiasIsStoredUnlessHeadsShareIt) {
  EXPECT_THAT(texts_of("learn t: f32[B, Hq, Sq, Skv]; score score + t[b, h, q_idx, kv_idx];"),
              ElementsAre("own"));
  const auto shared =
      parts_of("learn t: f32[1, Hq, Sq, Skv]; score score + t[0, h, q_idx, kv_idx];");
  EXPECT_EQ(shared.at(0).reach, Reach::shared);
  EXPECT_EQ(shared.at(0).bits, 5) << "16 heads, times 2";
  EXPECT_EQ(parts_of("learn t: f32[Sq, Skv]; dropout 0.5;"
                     "score score + 2.5 * t[q_idx, kv_idx];")
                .at(0)
                .bits,
            8);
  EXPECT_THAT(texts_of("learn t: f32[Sq, Skv]; score score + exp(t[q_idx, kv_idx]);"),
              ElementsAre("unknown"))
      << "nothing is known of the derivative";
  EXPECT_THAT(texts_of("learn t: f32[400, 400];"
                       "score score + t[q_idx, kv_idx] + t[kv_idx, q_idx];"),
              ElementsAre("unknown", "unknown"));
}

// They are added to the same words.
TEST(LearnedParts, ThoseOfATensorAreAllOfHeadsOrNone) {
  EXPECT_THAT(texts_of("learn t: f32[Skv]; score score + t[h] + t[kv_idx];"),
              ElementsAre("column", "column"));
}

TEST(LearnedParts, TensorsHaveElements) {
  const ir::Attention attention = of_spec(
      "attention a { dims B = 2, Hq = 8, Sq = 3, Skv = 4, D = 64; learn t: f32[Hq, Sq + 2];"
      "score score + t[h, q_idx]; }");
  EXPECT_EQ(elements_of(attention, "t"), 40);
}

}  // namespace
}  // namespace attn::engines::native
