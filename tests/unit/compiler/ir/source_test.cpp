// What to_source writes, the front end reads back with the same values.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compiler/driver/driver.h"
#include "compiler/reference/row_evaluator.h"
#include "compiler/rewrite/simplify.h"
#include "tests/unit/compiler/ir/random_attention.h"

namespace attn::ir {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kScores[] = {0.0, -0.0, 1.0, -2.5, kNaN, kInfinity, -kInfinity, 1e300, 3, 0.5};
constexpr std::int64_t kColumns = std::size(kScores);

reference::Bindings bindings() {
  reference::Bindings bindings;
  bindings.params["p"] = kNaN;
  bindings.tensors["t"] = {DType::f32, {4}, {kNaN, -0.0, 2.0, -kInfinity}};
  bindings.tensors["n"] = {DType::i32, {kColumns}, {0, 1, -1, 7, -8, 5, 3, 2, 9, 31}};
  bindings.tensors["keep"] = {DType::boolean, {kColumns}, {1, 0, 0, 1, 1, 0, 1, 0, 1, 1}};
  return bindings;
}

std::string spec_of(const Attention& attention) {
  return "attention random {\n"
         "  dims B = 2, Hq = 4, Hkv = 2, Sq = 6, Skv = 10, D = 8;\n"
         "  dtype bf16;\n  tensor t: f32[Hq];\n  tensor n: i32[Skv];\n  tensor keep: bool[Skv];\n"
         "  param p: f32;\n  scale 0.5;\n  score " +
         to_source(attention, attention.score) + ";\n  outputs o, lse;\n}\n";
}

std::vector<reference::Cell> scores(const Attention& attention) {
  const reference::Bindings inputs = bindings();
  const ExprId roots[] = {attention.score};
  reference::RowEvaluator evaluator(attention, inputs, roots);
  evaluator.run({1, 2, 3}, kScores);
  return evaluator.cells(attention.score);
}

bool same(double x, double y) {
  return (std::isnan(x) && std::isnan(y)) ||
         std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
}

// The language narrows integers in indexes alone.
bool narrows(const Attention& attention) {
  const ExprId roots[] = {attention.score};
  return std::ranges::any_of(reachable(attention.dag, roots),
                             [&](ExprId id) { return attention.dag[id].is(Op::narrow_); });
}

TEST(Source, ReadsBackWithTheSameValues) {
  int compared = 0;
  int refused = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Attention before = testing::RandomAttention(seed, kColumns).make();
    before.masks.clear();
    if (narrows(before)) continue;
    const support::Source source("random.attn", spec_of(before));
    diag::Sink sink(source);
    const auto after = driver::front_end(source, {}, sink);
    if (!after) {  // an index that leaves its tensor, a division by 0, ...
      ++refused;
      continue;
    }
    if (!after->masks.empty()) continue;
    const auto expected = scores(before);
    const auto actual = scores(*after);
    for (std::size_t column = 0; column < kColumns; ++column) {
      if (expected[column].fault) continue;
      ++compared;
      ASSERT_FALSE(actual[column].fault) << source.text();
      ASSERT_TRUE(same(expected[column].value, actual[column].value))
          << source.text() << to_text(before) << expected[column].value << " became "
          << actual[column].value;
    }
  }
  EXPECT_GT(compared, 20000);
  EXPECT_LT(refused, 140);
}

}  // namespace
}  // namespace attn::ir
