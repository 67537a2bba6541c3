#include "tools/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attn::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

io::HostTensor tensor(std::vector<double> values) {
  return {DType::f32, {static_cast<std::int64_t>(values.size())}, std::move(values)};
}

Comparison compare_o(std::vector<double> values, std::vector<double> reference,
                     DType dtype = DType::bf16) {
  return compare({{"o", tensor(std::move(values))}}, {{"o", tensor(std::move(reference))}}, dtype)
      .at(0);
}

Comparison compare_lse(std::vector<double> values, std::vector<double> reference) {
  return compare({{"lse", tensor(std::move(values))}}, {{"lse", tensor(std::move(reference))}},
                 DType::bf16)
      .at(0);
}

TEST(Compare, StatisticsHaveBoundsOfTheirOwn) {
  const auto compared = [](const char* name, double value, double reference) {
    return compare({{name, tensor({value})}}, {{name, tensor({reference})}}, DType::f16).at(0);
  };
  EXPECT_TRUE(compared("max", 1000.0019, 1000).agrees());
  EXPECT_FALSE(compared("max", 1000.0021, 1000).agrees());
  EXPECT_TRUE(compared("sum_exp", 500.9, 500).agrees());
  EXPECT_FALSE(compared("sum_exp", 501.1, 500).agrees());
}

TEST(Compare, EightBitsHaveBoundsByTheirRounding) {
  const auto compared = [](const char* name, double value, DType dtype) {
    return compare({{name, tensor({value})}}, {{name, tensor({1})}}, dtype).at(0).agrees();
  };
  EXPECT_TRUE(compared("o", 1.06, DType::e4m3) && compared("o", 1.12, DType::e5m2));
  EXPECT_FALSE(compared("o", 1.07, DType::e4m3) || compared("o", 1.13, DType::e5m2));
  EXPECT_TRUE(compared("amax_o", 1.12, DType::e4m3) && compared("amax_s", 1.001, DType::e4m3));
  EXPECT_FALSE(compared("amax_o", 1.13, DType::e4m3) || compared("amax_s", 1.003, DType::e4m3));
}

double bound_in_8_bits(const char* name, const Types& types) {
  const Outputs one = {{name, tensor({1})}};
  const bool is_gradient = name[0] == 'd';
  return compare(one, one, types, is_gradient ? one : Outputs()).at(0).bound;
}

TEST(Compare, BoundsIn8BitsFollowFromEachType) {
  const double e4m3 = 1.0 / 16, e5m2 = 1.0 / 8;
  Types hybrid(DType::e4m3);  // o in e4m3, the backward in e5m2
  hybrid.d_o = hybrid.gradients = DType::e5m2;
  EXPECT_DOUBLE_EQ(bound_in_8_bits("o", hybrid), e4m3);
  EXPECT_DOUBLE_EQ(bound_in_8_bits("dq", hybrid), std::hypot(e5m2, e5m2, e4m3));
  EXPECT_DOUBLE_EQ(bound_in_8_bits("dv", hybrid), std::hypot(e4m3, e5m2));
  EXPECT_DOUBLE_EQ(bound_in_8_bits("amax_dk", hybrid), 2 * bound_in_8_bits("dk", hybrid));
  Types current(DType::e4m3);  // o and gradients in bf16
  current.o = current.gradients = DType::bf16;
  current.d_o = DType::e5m2;
  EXPECT_DOUBLE_EQ(bound_in_8_bits("o", current), e4m3 / std::sqrt(2));
  EXPECT_DOUBLE_EQ(bound_in_8_bits("dq", current), e5m2);
  EXPECT_DOUBLE_EQ(bound_in_8_bits("dv", current), e4m3);
  EXPECT_DOUBLE_EQ(bound_in_8_bits("amax_dp", current), 2 * 0x1p-4);
  EXPECT_DOUBLE_EQ(bound_in_8_bits("lse", current), bound_in_8_bits("lse", DType::bf16));
}

// A row of 2 elements, one of them the smallest e4m3, beside one that is larger.
TEST(Compare, SmallRowsIn8BitsMayDifferByRoundings) {
  const auto agrees = [](double steps, const Types& types) {
    const double step = 0x1p-9;
    const io::HostTensor reference{DType::f32, {1, 1, 2, 2}, {step, 0, 0.1, 0.1}};
    io::HostTensor computed = reference;
    computed.values[0] += steps * step;
    return compare({{"dv", computed}}, {{"dv", reference}}, types, {{"dv", reference}})
        .at(0)
        .agrees();
  };
  EXPECT_TRUE(agrees(0.57, DType::e4m3));  // sqrt(2 / 6)
  EXPECT_FALSE(agrees(0.58, DType::e4m3));
  Types current(DType::e4m3);
  current.o = current.gradients = DType::bf16;
  EXPECT_TRUE(agrees(0.25, current));
  EXPECT_FALSE(agrees(0.26, current));
}

TEST(Compare, AmaxOfTermsThatCancelIsRelativeToTheirSizes) {
  const auto compared = [](const char* name, double value) {
    const Outputs sizes = {{"amax_dp", tensor({0x1p-8})}, {"amax_dq", tensor({0x1p-8})}};
    return compare({{name, tensor({value})}}, {{name, tensor({0})}}, DType::e4m3, sizes).at(0);
  };
  EXPECT_TRUE(compared("amax_dp", 1e-4).agrees() && compared("amax_dq", 1e-4).agrees());
  EXPECT_FALSE(compared("amax_dp", 1e-3).agrees() || compared("amax_dq", 1e-2).agrees());
  EXPECT_FALSE(compared("amax_dk", 1e-4).agrees());  // without sizes
}

// Relative to the largest score: sums of 8-bit products have few bits.
TEST(Compare, BoundsOfLogarithmsOf8BitsGrow) {
  const auto compared = [](double value, double by, DType dtype) {
    const Outputs reference = {{"max", tensor({1, value})}};
    return compare({{"max", tensor({1 + by, value})}}, reference, dtype).at(0).agrees();
  };
  EXPECT_TRUE(compared(1, 0.0019, DType::e4m3) && compared(-10, 0.0095, DType::e5m2));
  EXPECT_FALSE(compared(1, 0.0021, DType::e4m3) || compared(-10, 0.0100, DType::e4m3) ||
               compared(10, 0.0095, DType::bf16));
}

TEST(Compare, EqualAgrees) {
  const Comparison result = compare_o({3, 4}, {3, 4});
  EXPECT_TRUE(result.agrees());
  EXPECT_EQ(result.relative_l2, 0);
  EXPECT_EQ(result.max_abs, 0);
}

TEST(Compare, RelativeL2IsOverTheWholeTensor) {
  const Comparison result = compare_o({3, 4.5}, {3, 4});
  EXPECT_DOUBLE_EQ(result.relative_l2, 0.5 / 5);
  EXPECT_DOUBLE_EQ(result.max_abs, 0.5);
  EXPECT_THAT(result.why, HasSubstr("relative L2 1.00e-01 exceeds 4e-03"));
}

// 400 rows of two elements; one row has an error of `error` times its norm.
Comparison compare_rows(double error, double size = 1, DType dtype = DType::bf16) {
  io::HostTensor reference = {dtype, {4, 100, 2}, std::vector<double>(800, 1.0)};
  reference.values[2 * 307] = reference.values[2 * 307 + 1] = size;
  io::HostTensor values = reference;
  values.values[2 * 307] += error * size * std::sqrt(2);
  return compare({{"o", values}}, {{"o", reference}}, dtype).at(0);
}

TEST(Compare, EveryRowIsBounded) {
  EXPECT_TRUE(compare_rows(0.029).agrees());
  const Comparison result = compare_rows(0.04);
  EXPECT_LT(result.relative_l2, result.bound);
  EXPECT_NEAR(result.worst_row.value(), 0.04, 1e-12);
  EXPECT_THAT(result.why, HasSubstr("relative L2 4.00e-02 of row [3,7] exceeds 3e-02"));
  EXPECT_TRUE(compare_rows(0.007, 1, DType::f16).agrees());
  EXPECT_FALSE(compare_rows(0.01, 1, DType::f16).agrees());
}

TEST(Compare, ARowThatIsAlmostZeroIsMeasuredAgainstTheOthers) {
  EXPECT_FALSE(compare_rows(0.04, 0.02).agrees());
  EXPECT_TRUE(compare_rows(0.04, 1e-3).agrees());
  EXPECT_FALSE(compare_rows(50, 1e-3).agrees());
}

TEST(Compare, TheBoundIsTheDtypes) {
  EXPECT_TRUE(compare_o({1.003}, {1}, DType::bf16).agrees());
  EXPECT_FALSE(compare_o({1.005}, {1}, DType::bf16).agrees());
  EXPECT_TRUE(compare_o({1.0009}, {1}, DType::f16).agrees());
  EXPECT_FALSE(compare_o({1.003}, {1}, DType::f16).agrees());
}

TEST(Compare, NanNeverAgrees) {
  EXPECT_THAT(compare_o({kNan, 1}, {0, 1}).why, HasSubstr("1 values are NaN"));
  EXPECT_FALSE(compare_o({kNan}, {kNan}).agrees());
  EXPECT_FALSE(compare_o({0}, {kNan}).agrees());
  EXPECT_FALSE(compare_lse({kNan}, {-kInfinity}).agrees());
}

TEST(Compare, ZerosAgreeWithZerosOnly) {
  EXPECT_TRUE(compare_o({0, -0.0}, {0, 0}).agrees());
  EXPECT_FALSE(compare_o({0, 1e-9}, {0, 0}).agrees());
}

TEST(Compare, LseIsBoundedInMaxAbs) {
  EXPECT_TRUE(compare_lse({1000.0019}, {1000}).agrees());
  EXPECT_FALSE(compare_lse({1000.0019}, {1000}).worst_row.has_value());
  EXPECT_THAT(compare_lse({1000.0021}, {1000}).why, HasSubstr("max abs"));
}

// f32 numbers near 1e6 are 1/16 apart, those near 1e4 1/1024.
TEST(Compare, StatisticsOfLargeScoresAreBoundedByTheLargest) {
  EXPECT_TRUE(compare_lse({1e6 + 0.25, 3}, {1e6, 3.2}).agrees());
  EXPECT_FALSE(compare_lse({1e6 + 1, 3}, {1e6, 3}).agrees());
  EXPECT_FALSE(compare_lse({1e4 + 0.01}, {1e4}).agrees());
  EXPECT_FALSE(compare_lse({100.003, -kInfinity}, {100, -kInfinity}).agrees());
  EXPECT_TRUE(compare_lse({-1e6 + 0.25}, {-1e6}).agrees());

  const auto sums_agree = [](const char* name, double lse, double value) {
    const Outputs computed = {{"lse", tensor({lse})}, {name, tensor({value})}},
                  reference = {{"lse", tensor({lse})}, {name, tensor({1})}};
    const std::vector<Comparison> both = compare(computed, reference, DType::bf16);
    return both[0].agrees() && both[1].agrees();
  };
  for (const char* name : {"sum_exp", "sum_exp_with_sink"}) {
    EXPECT_TRUE(sums_agree(name, 1e5, 1.09));
    EXPECT_FALSE(sums_agree(name, 1e5, 1.11));
    EXPECT_FALSE(sums_agree(name, 100, 1.003));
    EXPECT_FALSE(sums_agree(name, 1e9, 2.1));
  }
}

TEST(Compare, InfinitiesMustStandInTheSamePlaces) {
  EXPECT_TRUE(compare_lse({-kInfinity, 1}, {-kInfinity, 1}).agrees());
  EXPECT_THAT(compare_lse({-1e30, 1}, {-kInfinity, 1}).why, HasSubstr("1 infinities"));
  EXPECT_FALSE(compare_lse({kInfinity, 1}, {-kInfinity, 1}).agrees());
  EXPECT_FALSE(compare_lse({-kInfinity, -kInfinity}, {-kInfinity, 1}).agrees());
}

// Rows of two elements; `size` is the size of all terms.
Comparison compare_gradient(const std::string& name, std::vector<double> values,
                            std::vector<double> reference, double size, DType dtype = DType::bf16) {
  const std::vector<std::int64_t> dims = {static_cast<std::int64_t>(reference.size()) / 2, 2};
  const io::HostTensor sizes{DType::f64, dims, std::vector<double>(reference.size(), size)};
  return compare({{name, {DType::f32, dims, std::move(values)}}},
                 {{name, {DType::f32, dims, std::move(reference)}}}, dtype, {{name, sizes}})
      .at(0);
}

TEST(Compare, GradientsHaveABoundOfTheirOwn) {
  EXPECT_TRUE(compare_gradient("dq", {1.009, 1.009}, {1, 1}, 0).agrees());
  EXPECT_THAT(compare_gradient("dq", {1.011, 1.011}, {1, 1}, 0).why,
              HasSubstr("relative L2 1.10e-02 exceeds 1e-02"));
  EXPECT_TRUE(compare_gradient("d_bias", {1.0019, 1}, {1, 1}, 0, DType::f16).agrees());
  EXPECT_FALSE(compare_gradient("d_bias", {1.0021, 1.0021}, {1, 1}, 0, DType::f16).agrees());
}

TEST(Compare, GradientsWhoseTermsCancelAreMeasuredByTheTerms) {
  EXPECT_TRUE(compare_gradient("dq", {0.009, -0.009}, {0, 0}, 1).agrees());
  EXPECT_DOUBLE_EQ(compare_gradient("dq", {0.009, -0.009}, {0, 0}, 3).relative_l2, 0.003);
  EXPECT_FALSE(compare_gradient("dq", {0.011, -0.011}, {1e-9, 0}, 1).agrees());
  EXPECT_FALSE(compare_gradient("dq", {1e-9, 0}, {0, 0}, 0).agrees()) << "nothing was added up";
  EXPECT_FALSE(compare_gradient("dq", {kNan, 0}, {0, 0}, 1).agrees());
}

TEST(Compare, ASizeThatIsNoNumberMeasuresNothing) {
  for (const double size : {kInfinity, kNan}) {
    EXPECT_FALSE(compare_gradient("dq", {1.1, 1}, {1, 1}, size).agrees());
  }
}

TEST(Compare, SizesLoosenNothingWhereTheGradientIsLarger) {
  EXPECT_DOUBLE_EQ(compare_gradient("dv", {4, 3.5}, {4, 3}, 1).relative_l2, 0.1);
}

TEST(Compare, RowsOfGradientsAndElementsOfLearnedTensorsAreBounded) {
  std::vector<double> reference(2000, 1.0);
  std::vector<double> values = reference;
  values[1001] = 1.05;
  EXPECT_THAT(compare_gradient("dk", values, reference, 0).why, HasSubstr("of row [500] exceeds"));
  EXPECT_THAT(compare_gradient("d_t", values, reference, 0).why,
              HasSubstr("relative L2 5.00e-02 of element [500,1] exceeds 3e-02"));
  EXPECT_TRUE(compare_gradient("dk", values, reference, 2).agrees());
  EXPECT_TRUE(compare_gradient("d_t", values, reference, 2).agrees());
  values[1001] = 1.029;
  EXPECT_TRUE(compare_gradient("d_t", values, reference, 0).agrees());
}

TEST(Compare, AMissingTensorOrOtherDimsDoNotAgree) {
  EXPECT_THAT(compare({}, {{"o", tensor({1})}}, DType::bf16).at(0).why, HasSubstr("missing"));
  EXPECT_THAT(compare_o({1}, {1, 2}).why, HasSubstr("[1] instead of [2]"));
  EXPECT_THAT(compare({{"o", tensor({1})}}, {}, DType::bf16), IsEmpty());
}

}  // namespace
}  // namespace attn::tools
