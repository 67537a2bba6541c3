// Weights by an expression, and over a sum.
#include <fmt/format.h>

#include <cmath>

#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::sema {
namespace {

// The text of the score, which has the weight where that is a function of each.
std::string weight(const std::string& expression) {
  const ir::Attention attention = good("weight " + expression + ";");
  EXPECT_TRUE(attention.is_linear()) << expression;
  return ir::to_source(attention, attention.score);
}

TEST(Weight, OfEachScoreIsAPartOfTheScore) {
  EXPECT_EQ(weight("relu(score)"), "max(score, 0.0)");
  EXPECT_EQ(good("weight sigmoid(score);").normalize, ir::Normalize::sigmoid);
  EXPECT_EQ(ir::to_text(good("weight sigmoid(2 * score);")),
            ir::to_text(good("score 2 * score; normalize sigmoid;")));
  EXPECT_EQ(ir::to_text(good("weight relu(score); score tanh(score);")),
            ir::to_text(good("score tanh(score); weight relu(score);")));
}

TEST(Weight, IsZeroWhereAScoreMayBeMinusInfinity) {
  EXPECT_EQ(weight("score"), "score");
  const ir::Attention hidden = good("score where(kv_idx == 2, -inf, score); weight silu(score);");
  EXPECT_EQ(hidden.dag[hidden.score].op, ir::Op::select_);
  const ir::Attention factor =
      good("score where(kv_idx == 2, -inf, score); weight 2 * silu(score) / 3;");
  EXPECT_EQ(factor.dag[factor.score].op, ir::Op::div_);
  const ir::Attention bias = good("tensor t: f32[Skv]; score score + t[kv_idx]; weight score;");
  EXPECT_EQ(bias.dag[bias.score].op, ir::Op::select_);
}

// A score of -inf hides its key too where the weight is a function of something else.
TEST(Weight, HidesWhatItsScoreHides) {
  const std::string hides = "score where(kv_idx % 3 == 1, -inf, score); ";
  for (const char* weight :
       {"sigmoid(-score)", "sigmoid(abs(score))", "sigmoid(max(score, -2))", "sigmoid(before)",
        "exp(-score) / sum(exp(-score))", "relu(exp(-score) - 1) / sum(abs(exp(-score) - 1))",
        "exp(-abs(score)) / sum(exp(-abs(score)) + 1)", "exp(before) / sum(exp(before))"}) {
    const ir::Attention attention =
        good("let before = score; " + hides + "weight " + std::string(weight) + ";");
    const ir::Node& score = attention.dag[attention.score];
    ASSERT_EQ(score.op, ir::Op::select_) << weight;
    EXPECT_EQ(ir::fold_real(attention.dag, score.operands[1]), -INFINITY) << weight;
  }
  EXPECT_EQ(ir::to_text(good(hides + "weight sigmoid(score);")),
            ir::to_text(good(hides + "normalize sigmoid;")));
  EXPECT_EQ(ir::to_text(good(hides + "weight exp(score) / sum(exp(score));")),
            ir::to_text(good(hides)));
}

// "f / g" of a weight over a sum.
std::string parts(const std::string& clauses) {
  const ir::Attention attention = good(clauses);
  if (!attention.quotient) return "none";
  return fmt::format("{} / {}{}", ir::to_source(attention.dag, attention.quotient->f),
                     ir::to_source(attention.dag, attention.quotient->g),
                     attention.quotient->exponential ? ", exponential" : "");
}

TEST(Weight, OverASumIsInProportionToOneExponential) {
  EXPECT_EQ(parts("weight relu(exp(score) - 1) / sum(abs(exp(score) - 1));"),
            "max(score - unit, 0.0) / abs(score - unit), exponential");
  EXPECT_EQ(parts("weight expm1(score) / sum(abs(expm1(score)));"),
            "score - unit / abs(score - unit), exponential");
  EXPECT_EQ(parts("weight exp(score) / sum(exp(score) + 3);"),
            "score / score + 3.0 * unit, exponential");
  EXPECT_EQ(parts("weight where(exp(score) > 2, 1.0, 0.0) / sum(exp(score) + 1);"),
            "where(score > 2.0 * unit, 1.0, 0.0) * unit / score + unit, exponential");
  EXPECT_EQ(parts("weight relu(score) / sum(abs(score) + 1);"),
            "max(score, 0.0) / abs(score) + 1.0");
}

TEST(Weight, OverASumMayIgnoreTheProducts) {
  const std::string bias = "tensor t: f32[Skv]; score t[kv_idx]; ";
  EXPECT_EQ(parts(bias + "weight expm1(score / 4) / sum(exp(score / 4) + 2);"),
            "score - unit / score + 2.0 * unit, exponential");
  EXPECT_EQ(parts(bias + "weight score / sum(abs(score));"), "score / abs(score)");
}

TEST(Weight, OfExponentialsIsSoftmax) {
  EXPECT_EQ(ir::to_text(good("weight exp(2 * score) / sum(exp(2 * score)); outputs o, lse, max;")),
            ir::to_text(good("score 2 * score; outputs o, lse, max;")));
  EXPECT_EQ(parts("let x = exp(score); weight x / sum(x);"), "none");
  EXPECT_EQ(parts("weight exp(-abs(score)) / sum(exp(-abs(score)));"), "none");
  EXPECT_EQ(parts("weight exp(-abs(score)) / sum(exp(-abs(score)) + 1);"),
            "score / score + unit, exponential");
  EXPECT_EQ(parts("weight score * exp(-abs(score)) / sum(exp(-abs(score)));"),
            "score * exp(-abs(score)) / exp(-abs(score))");
}

// Not as it is written, but as it is computed.
TEST(Weight, HasWhatSoftmaxHasIfItIsSoftmax) {
  for (const char* weight :
       {"weight exp(-abs(score)) / sum(exp(-abs(score)));",
        "let p = exp(score); weight p / sum(p);", "let p = exp(score); weight exp(score) / sum(p);",
        "weight exp(2 * score) / sum(exp(2 * score));"}) {
    const std::string begin = std::string(weight) + " ";
    for (const char* clause : {"outputs o, max;", "outputs o, sum_exp;", "sink 0;"})
      EXPECT_EQ(analyze_body(begin + clause).codes, Codes{}) << weight << clause;
    EXPECT_EQ(analyze_body(begin + "dtype e4m3; quantize per_tensor;").codes, Codes{}) << weight;
  }
  for (const char* weight : {"exp(1) / sum(exp(1))", "exp(score) / sum(exp(score) + 1)"}) {
    const std::string begin = "weight " + std::string(weight) + "; ";
    for (const char* clause :
         {"outputs o, max;", "outputs o, sum_exp;", "sink 0;", "dtype e4m3; quantize per_tensor;"})
      EXPECT_EQ(analyze_body(begin + clause).codes, Codes{"E0207"}) << weight << clause;
  }
}

TEST(Weight, OverASumThatUnderflowsIsRefused) {
  for (const char* weight :
       {"min(exp(score), 1) / sum(min(exp(score), 1))",
        "relu(1 - exp(score)) / sum(relu(1 - exp(score)))",
        "exp(score) / sum(exp(score) + relu(exp(score) - 1))", "(exp(score) + 1) / sum(exp(score))",
        "exp(score) / sum(0 * exp(score))"}) {
    EXPECT_EQ(analyze_body("weight " + std::string(weight) + ";").codes, Codes{"E0505"}) << weight;
  }
  for (const char* weight :
       {"relu(exp(score) - 1) / sum(relu(exp(score) - 1))",
        "relu(exp(score) - 1) / sum(abs(exp(score) - 1))", "exp(score) / sum(exp(score) + 0.5)",
        "exp(score) / sum(max(exp(score), 2))", "exp(score) / sum(2 * exp(score))"}) {
    EXPECT_EQ(analyze_body("weight " + std::string(weight) + ";").codes, Codes{}) << weight;
  }
}

TEST(Weight, OverASumHasNumbersOfF32) {
  for (const char* weight :
       {"max(exp(score), 1e300) / sum(exp(score) + 1e300)", "score * 1e39 / sum(abs(score))",
        "exp(score) / sum(exp(score) + 1e-45)", "1e20 * (1e20 * exp(score)) / sum(exp(score))",
        "min(exp(score), inf) / sum(exp(score))", "abs(score) / sum(abs(score) + 1e300)"}) {
    EXPECT_EQ(analyze_body("weight " + std::string(weight) + ";").codes, Codes{"E0505"}) << weight;
  }
  EXPECT_EQ(analyze_body("weight score / sum(1e30 * abs(score));").codes, Codes{});
}

TEST(Weight, OverASumOfEvenPowersIsPositive) {
  EXPECT_EQ(analyze_body("weight score ** 2 / sum(score ** 2);").codes, Codes{});
  EXPECT_EQ(analyze_body("weight score ** 4 / sum(score ** 4);").codes, Codes{});
  EXPECT_EQ(analyze_body("weight score ** 3 / sum(score ** 3);").codes, Codes{"E0505"});
}

TEST(Weight, OverASumOfAConstantScore) {
  EXPECT_EQ(
      analyze_body("score 1.0; weight relu(exp(score) - 1) / sum(abs(exp(score) - 1));").codes,
      Codes{});
  EXPECT_EQ(parts("score 1.0; weight exp(score) / sum(exp(score));"), "none");
}

TEST(Weight, OverASumThatIsAFunctionIsReported) {
  EXPECT_EQ(analyze_body("fn sum(x) = 2 * x; weight exp(score) / sum(exp(score));").codes,
            Codes{"E0205"});
}

TEST(Weight, OverASumIsRefusedWithoutAProof) {
  for (const char* unstable :
       {"exp(score) ** 2 / sum(exp(score))", "exp(score) / sum(exp(2 * score))",
        "score / sum(exp(score))", "exp2(score) / sum(exp2(score))", "score / sum(score)",
        "1 / (1 + exp(score)) / sum(exp(score))", "h * exp(score) / sum(exp(score))",
        "score / sum(score - 1)"}) {
    EXPECT_EQ(analyze_body("weight " + std::string(unstable) + ";").codes, Codes{"E0505"})
        << unstable;
  }
  EXPECT_EQ(analyze_body("let x = score; score 2 * score; weight x / sum(abs(x));").codes,
            Codes{"E0505"});
}

TEST(Weight, HasNoStatisticsButLseOfASum) {
  EXPECT_EQ(analyze_body("weight relu(score); outputs o, lse;").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("weight relu(score); sink 0.5;").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("weight relu(score); normalize softmax;").codes, Codes{"E0501"});
  const std::string sum = "weight score / sum(abs(score)); ";
  EXPECT_EQ(analyze_body(sum + "outputs o, lse;").codes, Codes{});
  EXPECT_EQ(analyze_body(sum + "outputs o, max;").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body(sum + "sink 0.5;").codes, Codes{"E0207"});
  EXPECT_EQ(analyze_body("score score / sum(score);").codes, Codes{"E0203"});
}

}  // namespace
}  // namespace attn::sema
