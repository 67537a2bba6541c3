#include "compiler/sema/operations.h"
#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::sema {
namespace {

TEST(Functions, OfOneRealArgument) {
  for (const char* name : {"exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sigmoid", "erf",
                           "sin", "cos", "tan"}) {
    EXPECT_EQ(score(std::string(name) + "(score)"), std::string(name) + "(score)");
    EXPECT_EQ(score(std::string(name) + "()"), "E0307");
    EXPECT_EQ(score(std::string(name) + "(score, 1)"), "E0307");
  }
  EXPECT_EQ(score("sqrt(4)"), "sqrt(4.0)");
}

TEST(Functions, KeepIntegers) {
  EXPECT_EQ(mask("abs(q_idx - kv_idx) <= 3"), "abs(q_idx - kv_idx) <= 3");
  EXPECT_EQ(mask("min(q_idx, kv_idx, 3) == max(1, 2)"), "min(min(q_idx, kv_idx), 3) == max(1, 2)");
  EXPECT_EQ(mask("floor(q_idx) == ceil(kv_idx)"), "q_idx == kv_idx");
  EXPECT_EQ(mask("clamp(kv_idx, 0, 9) == 3"), "min(max(kv_idx, 0), 9) == 3");
  EXPECT_EQ(mask("relu(q_idx - 3) == 0"), "max(q_idx - 3, 0) == 0");
}

TEST(Functions, OfReals) {
  EXPECT_EQ(score("floor(score)"), "floor(score)");
  EXPECT_EQ(score("clamp(score, -1, 1)"), "min(max(score, -1.0), 1.0)");
  EXPECT_EQ(score("relu(score)"), "max(score, 0.0)");
  EXPECT_EQ(score("max(score, 1)"), "max(score, 1.0)");
}

TEST(Functions, MadeOfOthers) {
  EXPECT_EQ(score("silu(score)"), "score * sigmoid(score)");
  EXPECT_EQ(score("gelu(score)"), "0.5 * score * (1.0 + erf(score * 0.7071067811865476))");
  EXPECT_EQ(score("softplus(score)"), "max(score, 0.0) + log(1.0 + exp(-abs(score)))");
}

TEST(Where, PicksOfOneType) {
  EXPECT_EQ(score("where(q_idx > 1, score, 0)"), "where(q_idx > 1, score, 0.0)");
  EXPECT_EQ(mask("where(q_idx > 1, kv_idx > 2, true)"), "where(q_idx > 1, kv_idx > 2, true)");
  EXPECT_EQ(mask("where(flag[0], q_idx, flag[1]) == 1"),
            "where(flag[0], q_idx, where(flag[1], 1, 0)) == 1");
  EXPECT_EQ(score("where(q_idx, score, 0)"), "E0301");
}

TEST(Functions, AreAllCallable) {
  for (const std::string_view name : function_names()) {
    int served = 0;
    for (const char* arguments : {"(q_idx)", "(q_idx, 1)", "(q_idx > 0, 1, 2)", "(q_idx, 1, 2)"}) {
      const std::string call = std::string(name) + arguments;
      served += score(call)[0] == 'E' ? 0 : 1;
    }
    EXPECT_GT(served, 0) << name;
  }
}

}  // namespace
}  // namespace attn::sema
