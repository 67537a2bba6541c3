// Derivatives as expressions, the reverse mode of the reference and finite differences agree on
// random scores. ATTN_RANDOM_SCORES=N sets their number.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "compiler/gradient/differentiate.h"
#include "compiler/reference/reverse.h"
#include "compiler/rewrite/simplify.h"
#include "tests/unit/compiler/gradient/random_score.h"
#include "tests/unit/compiler/ir/random_attention.h"

namespace attn::gradient {
namespace {

using ir::ExprId;
using reference::Bindings;
using reference::RowEvaluator;

constexpr std::int64_t kColumns = 10;
constexpr double kScores[kColumns] = {0.3, -1.7, 2.2, -0.45, 5.1, -3.3, 0.07, 1.15, -0.9, 4.4};
constexpr reference::RowPlace kPlace = {1, 2, 4};

unsigned count_of(unsigned usual) {
  const char* given = std::getenv("ATTN_RANDOM_SCORES");
  return given ? static_cast<unsigned>(std::stoul(given)) : usual;
}

Bindings bindings(double t_shift = 0, double u_shift = 0) {
  Bindings result;
  result.params["p"] = 0.6137;
  result.tensors["t"] = {DType::f64, {4}, {0.7, -1.3, 0.21, 1.9}};
  result.tensors["u"] = {
      DType::f64, {kColumns}, {0.9, -0.4, 1.1, 0.33, -1.6, 0.5, 2.1, -0.8, 1.07, 0.04}};
  for (double& value : result.tensors["t"].values) value += t_shift;
  for (double& value : result.tensors["u"].values) value += u_shift;
  return result;
}

// The score with all products, all elements of t or all of u moved by `shift`.
std::vector<double> moved(const ir::Attention& attention, std::string_view what, double shift) {
  const Bindings inputs = bindings(what == "t" ? shift : 0, what == "u" ? shift : 0);
  const ExprId roots[] = {attention.score};
  RowEvaluator evaluator(attention, inputs, roots);
  std::vector<double> scores(kScores, kScores + kColumns);
  for (double& score : scores) score += what == "score" ? shift : 0;
  evaluator.run(kPlace, scores);
  std::vector<double> values;
  for (const reference::Cell& cell : evaluator.cells(attention.score)) {
    values.push_back(cell.value);
  }
  return values;
}

// Richardson extrapolation of central differences; NaN if steps differ so much that there is a
// corner or a jump between them. The tiny step detects jumps at equal distances.
std::vector<double> by_differences(const ir::Attention& attention, std::string_view what) {
  const auto slopes = [&](double step) {
    std::vector<double> up = moved(attention, what, step), down = moved(attention, what, -step);
    for (std::size_t i = 0; i < up.size(); ++i) up[i] = (up[i] - down[i]) / (2 * step);
    return up;
  };
  constexpr double kStep = 1e-3;
  std::vector<double> coarse = slopes(kStep);
  const std::vector<double> fine = slopes(kStep / 2), finest = slopes(kStep / 4);
  const std::vector<double> tiny = slopes(1e-6), middle = moved(attention, what, 0);
  for (std::size_t i = 0; i < fine.size(); ++i) {
    const double first = (4 * fine[i] - coarse[i]) / 3, second = (4 * finest[i] - fine[i]) / 3;
    const bool smooth = std::fabs(first - second) <= 1e-7 * (1 + std::fabs(second)) &&
                        std::fabs(tiny[i] - second) <= 1e-4 * (1 + std::fabs(second));
    const bool rounds_little = std::fabs(middle[i]) <= 1e4 * (1 + std::fabs(second));
    coarse[i] = smooth && rounds_little ? (16 * second - first) / 15 : NAN;
  }
  return coarse;
}

struct Tally {
  int compared = 0;
  int skipped = 0;
  double worst = 0;

  void compare(double actual, double expected) {
    if (!std::isfinite(expected) || !std::isfinite(actual)) {
      ++skipped;
      return;
    }
    ++compared;
    worst = std::max(worst, std::fabs(actual - expected) / (1 + std::fabs(expected)));
  }
};

// The sum of the local derivatives of a tensor at a column: the derivative by a shift of all its
// elements.
double sum_of_locals(const Derivatives& derivatives, const RowEvaluator& evaluator,
                     std::string_view tensor, std::size_t column) {
  double sum = 0;
  for (const TensorGradient& gradient : derivatives.tensors) {
    if (gradient.tensor != tensor) continue;
    for (const Gather& gather : gradient.score) {
      sum += evaluator.cells(gather.local)[column].value;
    }
  }
  return sum;
}

double sum_of_cotangents(const ir::Dag& dag, const reference::ReverseMode& reverse,
                         std::string_view tensor) {
  double sum = 0;
  for (const ExprId load : reverse.loads()) {
    if (dag.symbol_of(load) == tensor) sum += reverse.cotangent(load);
  }
  return sum;
}

std::vector<ExprId> roots_of(const Derivatives& derivatives) {
  std::vector<ExprId> roots = {derivatives.attention.score, derivatives.score};
  for (const TensorGradient& tensor : derivatives.tensors) {
    for (const Gather& gather : tensor.score) roots.push_back(gather.local);
  }
  return roots;
}

struct Tallies {
  Tally expressions;  // against finite differences
  Tally reverse;      // reverse mode against the expressions
};

void compare_all(const Derivatives& derivatives, Tallies& tallies) {
  const ir::Attention& attention = derivatives.attention;
  const Bindings inputs = bindings();
  RowEvaluator evaluator(attention, inputs, roots_of(derivatives));
  evaluator.run(kPlace, kScores);
  reference::ReverseMode reverse(attention.dag, evaluator, attention.score);
  ir::Dag with_leaf = attention.dag;
  const ExprId score = with_leaf.leaf(ir::Op::score_);
  for (const std::string_view what : {"score", "t", "u"}) {
    const std::vector<double> slopes = by_differences(attention, what);
    for (std::size_t column = 0; column < slopes.size(); ++column) {
      reverse.run(column, 1);
      const bool by_score = what == "score";
      const double expression = by_score ? evaluator.cells(derivatives.score)[column].value
                                         : sum_of_locals(derivatives, evaluator, what, column);
      tallies.expressions.compare(expression, slopes[column]);
      tallies.reverse.compare(
          by_score ? reverse.cotangent(score) : sum_of_cotangents(attention.dag, reverse, what),
          expression);
    }
  }
}

TEST(RandomScores, DerivativesAgreeWithReverseModeAndDifferences) {
  Tallies tallies;
  const unsigned count = count_of(5000);
  for (unsigned seed = 0; seed < count; ++seed) {
    const ir::Attention attention = testing::RandomScore(seed, kColumns).make();
    ASSERT_TRUE(ir::verify(attention).ok()) << ir::verify(attention).error().message;
    const Derivatives derivatives = differentiate(rewrite::simplify(attention));
    ASSERT_TRUE(ir::verify(derivatives.attention).ok());
    compare_all(derivatives, tallies);
    ASSERT_LT(tallies.expressions.worst, 1e-6) << to_source(attention, attention.score);
    ASSERT_LT(tallies.reverse.worst, 1e-9) << to_source(attention, attention.score);
  }
  std::printf(
      "%u scores: %d slopes, %d at corners or infinite; worst %.2g of differences, %.2g of "
      "reverse mode\n",
      count, tallies.expressions.compared, tallies.expressions.skipped, tallies.expressions.worst,
      tallies.reverse.worst);
  EXPECT_GT(tallies.expressions.compared, 9 * tallies.expressions.skipped);
}

}  // namespace
}  // namespace attn::gradient
