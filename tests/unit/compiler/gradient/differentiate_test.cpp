// Derivatives at corners, where functions have none, and in branches that are not taken; and which
// inputs have one. (The expressions are in tests/golden/gradient.)
#include "compiler/gradient/differentiate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/reference/reverse.h"
#include "compiler/rewrite/simplify.h"
#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::gradient {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ir::Attention attention_of(const std::string& clauses) {
  const sema::Analyzed analyzed =
      sema::analyze_body("dims B = 1, Hq = 2, Sq = 4, D = 8; " + clauses);
  EXPECT_TRUE(analyzed.attention.has_value()) << analyzed.text;
  return analyzed.attention ? rewrite::simplify(*analyzed.attention) : ir::Attention{};
}

// The derivative of a score by the product, where the product is `at`. Evaluates the expression and
// checks that reverse mode agrees.
double slope(const std::string& score, double at) {
  const Derivatives derivatives = differentiate(attention_of("score " + score + ";"));
  const ir::Attention& attention = derivatives.attention;
  const ir::ExprId roots[] = {attention.score, derivatives.score};
  const reference::Bindings none;
  reference::RowEvaluator evaluator(attention, none, roots);
  evaluator.run({}, std::span(&at, 1));
  reference::ReverseMode reverse(attention.dag, evaluator, attention.score);
  reverse.run(0, 1);
  ir::Dag dag = attention.dag;
  const double value = evaluator.cells(derivatives.score)[0].value;
  const double reversed = reverse.cotangent(dag.leaf(ir::Op::score_));
  EXPECT_TRUE(reversed == value || (std::isnan(reversed) && std::isnan(value))) << score;
  return value;
}

TEST(Differentiate, CornersHaveWhatTheLanguageSays) {
  EXPECT_EQ(slope("abs(score)", 0), 0);
  EXPECT_EQ(slope("abs(score)", -3), -1);
  EXPECT_EQ(slope("max(score, 2)", 2), 0.5);
  EXPECT_EQ(slope("min(score, 2)", 2), 0.5);
  EXPECT_EQ(slope("max(score, 2)", 1), 0);
  EXPECT_EQ(slope("max(score, 2 * score)", 0), 1.5);
  EXPECT_EQ(slope("relu(score)", 0), 0.5);
  EXPECT_EQ(slope("clamp(score, -1, 1)", 1), 0.5);
  EXPECT_EQ(slope("softplus(score)", 0), 0.5);
  EXPECT_EQ(slope("floor(score) + ceil(score) + score // 1", 0.5), 0);
  EXPECT_EQ(slope("score % 2", 4), 1);
  EXPECT_EQ(slope("5 % score", 2), -2);
  EXPECT_EQ(slope("score ** 0", 0), 0);
  EXPECT_EQ(slope("score ** 3", 0), 0);
  EXPECT_EQ(slope("0.0 ** score", 2), 0);
  EXPECT_EQ(slope("where(score > 0, 2 * score, score)", 0), 1);
  EXPECT_EQ(slope("sqrt(score)", 0), kInfinity);
  EXPECT_EQ(slope("log1p(score)", -1), kInfinity);
  EXPECT_EQ(slope("expm1(score)", -kInfinity), 0);
  EXPECT_TRUE(std::isnan(slope("atan2(score, 2 * score)", 0)));
  EXPECT_EQ(slope("atan2(score, 2)", 0), 0.5);
  EXPECT_EQ(slope("int(score) * 1.0", 2.5), 0);
}

TEST(Differentiate, BranchesNotTakenSayNothing) {
  EXPECT_EQ(slope("where(score > 0, log(score), score)", 0), 1);
  EXPECT_EQ(slope("where(score > 0, sqrt(score) * score, 0)", 0), 0);
  EXPECT_EQ(slope("where(score == 0, 0, atan2(score, 2 * score))", 0), 0);
  EXPECT_EQ(slope("where(isnan(log(score)), score, log(score))", -1), 1);
  EXPECT_EQ(slope("2 * exp(where(score < 700, score, 0)) * 0 + score", 1000), 1);
  EXPECT_EQ(slope("min(max(sqrt(score), 1), 4)", 0), 0);
  // Nor if the outer function is steep: 0 * inf.
  EXPECT_EQ(slope("sqrt(where(score > 0, score, 0))", -1), 0);
  EXPECT_EQ(slope("sqrt(max(score, 0) + max(score - 1, 0)) / 2", -1), 0);
  EXPECT_EQ(slope("sqrt(abs(score))", 0), 0);
  EXPECT_EQ(slope("log(2 * min(score, 0)) + score", 1), 1);
  EXPECT_EQ(slope("sqrt(where(score > 0, score, 0))", 4), 0.25);
}

TEST(Differentiate, WhatIsWanted) {
  const std::string clauses = "learn s: f32[Hq]; tensor t: f32[Hq]; score score * s[h] + t[h];";
  EXPECT_THAT(wanted_gradients(attention_of(clauses)), ElementsAre("q", "k", "v", "s"));
  EXPECT_THAT(wanted_gradients(attention_of(clauses + "grad v, q;")), ElementsAre("v", "q"));
  EXPECT_THAT(differentiate(attention_of(clauses + "grad v, q;")).tensors, IsEmpty());
}

TEST(Differentiate, TensorsThatReachNothingHaveNoGathers) {
  const Derivatives derivatives = differentiate(
      attention_of("learn s: f32[Hq]; score score + floor(s[h]) + where(s[h] > 0, 1, 2);"));
  ASSERT_EQ(derivatives.tensors.size(), 1u);
  EXPECT_THAT(derivatives.tensors[0].score, IsEmpty());
  EXPECT_THAT(derivatives.tensors[0].sink, IsEmpty());
}

// The network's derivative is that by its input, which many terms read, times the input's.
TEST(Differentiate, WhatManyTermsReadIsAFactor) {
  const Derivatives derivatives = differentiate(
      attention_of("learn w: f32[8]; learn c: f32[1]; let x = tanh(c[0] * (q_idx - kv_idx)); "
                   "score score + sum(m in 0..8: w[m] * relu(x - m)); grad c;"));
  const ir::Dag& dag = derivatives.attention.dag;
  const ir::ExprId roots[] = {derivatives.tensors.at(0).score.at(0).local};
  std::size_t inputs = 0, loads = 0;
  for (const ir::ExprId id : ir::reachable(dag, roots)) {
    inputs += dag[id].is(ir::Op::tanh_) ? 1 : 0;
    loads += dag[id].is(ir::Op::load_) && dag.symbol_of(id) == "w" ? 1 : 0;
  }
  EXPECT_EQ(inputs, 1u);
  EXPECT_EQ(loads, 8u);
  EXPECT_TRUE(dag[roots[0]].is(ir::Op::select_));  // 0 where the outer derivative is
  // Nor does a steep input say anything where no term follows it: 0 * inf.
  EXPECT_EQ(slope("sum(m in 0..8: relu(sqrt(score) - m - 1))", 0), 0);
}

TEST(Differentiate, KeepsTheNodesOfTheForward) {
  const ir::Attention before = attention_of("score 20 * tanh(score / 20);");
  const Derivatives derivatives = differentiate(before);
  EXPECT_EQ(ir::to_text(derivatives.attention), ir::to_text(before));
  EXPECT_EQ(derivatives.attention.score, before.score);
  // 1 - t * t: the tanh is that of the forward.
  EXPECT_EQ(derivatives.attention.dag.size(), before.dag.size() + 3);
}

// Learned or not.
TEST(CanLearn, WhatTheScoreOrTheSinkDependsOn) {
  const auto can = [](const std::string& clauses) {
    return can_learn(attention_of("tensor t: f32[Hq]; tensor i: i32[Hq]; " + clauses), "t");
  };
  EXPECT_TRUE(can("score score * t[h];"));
  EXPECT_TRUE(can("sink t[h];"));
  EXPECT_TRUE(can("score score + t[i[h] % 2];"));
  EXPECT_FALSE(can("score score + 1;"));  // nothing reads it
  EXPECT_FALSE(can("mask t[h] > 0.0;"));
  EXPECT_FALSE(can("score score * t[h]; mask t[0] > 0.0;"));  // a mask reads it, too
  EXPECT_FALSE(can("score where(t[h] > 0.0, score, 0.0);"));
  EXPECT_FALSE(can("tensor u: f32[Hq]; score score + u[int(t[h]) % 2];"));
  EXPECT_FALSE(can_learn(attention_of("tensor i: i32[Hq]; score score + i[h];"), "i"));
  EXPECT_FALSE(can_learn(attention_of("score score;"), "t"));  // there is none
}

}  // namespace
}  // namespace attn::gradient
