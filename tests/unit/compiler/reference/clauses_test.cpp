// Lengths, sinks, dropout and further outputs, each compared with an explicit softmax.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "compiler/reference/defaults.h"
#include "tests/unit/compiler/reference/problem.h"

namespace attn::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One query of [1], keys 1 and 2, values 10 and 20, scale 0.5: scores 0.5 and 1.
Inputs two_keys() {
  Inputs inputs;
  inputs.tensors["q"] = testing::tensor({1, 1, 1, 1}, {1});
  inputs.tensors["k"] = testing::tensor({1, 1, 2, 1}, {1, 2});
  inputs.tensors["v"] = testing::tensor({1, 1, 2, 1}, {10, 20});
  return inputs;
}
constexpr const char* kTwoKeys = "B=1 Hq=1 Hkv=1 Sq=1 Skv=2 Dqk=1 Dv=1";

Outputs evaluated(const std::string& dims, const std::string& body, const Inputs& inputs) {
  Result<Outputs> outputs = evaluate(testing::attention(dims, body), inputs, {.unrounded = true});
  EXPECT_TRUE(outputs.ok()) << (outputs.ok() ? "" : outputs.error().message);
  return outputs.ok() ? *outputs : Outputs{};
}

std::string refusal(const std::string& dims, const std::string& body, const Inputs& inputs) {
  const Result<Outputs> outputs = evaluate(testing::attention(dims, body), inputs, {});
  return outputs.ok() ? "" : outputs.error().message;
}

constexpr const char* kPlain =
    "  %0: real = const_real 0.5\n  %1: real = score\n  scale %0\n  score %1\n";

TEST(Outputs, MaxAndSumOfExponentials) {
  const Outputs out = evaluated(kTwoKeys, std::string(kPlain) + "  outputs o\n", two_keys());
  EXPECT_DOUBLE_EQ(out.max.values[0], 1);
  EXPECT_DOUBLE_EQ(out.sum_exp.values[0], 1 + std::exp(-0.5));
  EXPECT_DOUBLE_EQ(out.lse.values[0], 1 + std::log(1 + std::exp(-0.5)));
}

// Scores 0.5 and 1, as above, by way of descales.
constexpr const char* kQuantized =
    "  dtype e4m3\n  tensor descale_q: f32[%0]\n  tensor descale_k: f32[%0]\n"
    "  tensor descale_v: f32[%0]\n  tensor descale_s: f32[%0]\n  tensor scale_s: f32[%0]\n"
    "  tensor scale_o: f32[%0]\n  %0: int = const_int 1\n  %1: real = const_real 0.5\n"
    "  %2: real = score\n  scale %1\n  score %2\n  quantize o=e4m3 do=e4m3 gradients=e4m3\n"
    "  outputs o\n";
Inputs quantized_inputs(double scale_s, double scale_o) {
  Inputs inputs = two_keys();
  for (const auto& [name, value] : {std::pair("descale_q", 0.25), std::pair("descale_k", 4.0),
                                    std::pair("descale_v", 0.5), std::pair("descale_s", 0.125),
                                    std::pair("scale_s", scale_s), std::pair("scale_o", scale_o)}) {
    inputs.tensors[name] = testing::tensor({1}, {value});
  }
  return inputs;
}
Outputs quantized(double scale_s, double scale_o, bool unrounded) {
  Result<Outputs> outputs = evaluate(testing::attention(kTwoKeys, kQuantized),
                                     quantized_inputs(scale_s, scale_o), {.unrounded = unrounded});
  EXPECT_TRUE(outputs.ok()) << (outputs.ok() ? "" : outputs.error().message);
  return outputs.ok() ? *outputs : Outputs{};
}

TEST(Quantized, WeightsAreRoundedRelativeToTheLargestOfTheRow) {
  const double weight = std::exp(-0.5), sum = weight + 1;
  const double unrounded = (weight * 10 + 20) * 8 * 0.125 * 0.5 / sum;
  EXPECT_NEAR(quantized(8, 1, true).o.values[0], unrounded, 1e-14);
  // 8 exp(-0.5) is 4.85, in e4m3 5; 20 and 10 are exact.
  const double y = (5.0 * 10 + 8 * 20) * 0.125 * 0.5 / sum;
  const Outputs out = quantized(8, 4, false);
  EXPECT_EQ(out.o.values[0], round_to(DType::e4m3, 4 * y));
  EXPECT_NEAR(out.amax_o.values[0], y, 1e-14);
  EXPECT_THAT(out.amax_o.dims, ElementsAre(1));
  EXPECT_NEAR(out.amax_s.values[0], 1 / sum, 1e-15);
}

TEST(Quantized, Saturates) {
  EXPECT_EQ(quantized(8, 1e6, false).o.values[0], 448);
  // Both weights, at 448, count the same.
  const double y = 448.0 * (10 + 20) * 0.125 * 0.5 / (std::exp(-0.5) + 1);
  EXPECT_NEAR(quantized(1e6, 1, false).amax_o.values[0], y, 1e-9);
}

TEST(Quantized, AScaleIsPositiveAndFinite) {
  for (const double wrong : {0.0, -1.0, kInfinity, std::nan("")}) {
    EXPECT_THAT(refusal(kTwoKeys, kQuantized, quantized_inputs(wrong, 1)),
                HasSubstr("is not positive and finite"));
  }
}

TEST(Sigmoid, EachWeightIsThatOfItsScore) {
  const auto weight = [](double score) { return 1 / (1 + std::exp(-score)); };
  const std::string sigmoid = std::string(kPlain) + "  normalize sigmoid\n  outputs o\n";
  EXPECT_NEAR(evaluated(kTwoKeys, sigmoid, two_keys()).o.values[0],
              10 * weight(0.5) + 20 * weight(1), 1e-14);
  const std::string second =
      "  %0: real = const_real 0.5\n  %1: real = score\n  %2: int = column\n"
      "  %3: int = const_int 1\n  %4: bool = eq %2, %3\n"
      "  scale %0\n  score %1\n  mask %4\n  normalize sigmoid\n  outputs o\n";
  EXPECT_NEAR(evaluated(kTwoKeys, second, two_keys()).o.values[0], 20 * weight(1), 1e-14);
}

// Scores of 0.5 and 1, or as many hundreds.
TEST(Weights, OverASumNeverOverflow) {
  const auto body = [](const char* scale) {
    return std::string("  %0: real = const_real ") + scale +
           "\n  %1: real = score\n  %2: real = unit\n  %3: real = sub %1, %2\n"
           "  %4: real = abs %3\n  scale %0\n  score %1\n  normalize quotient\n"
           "  quotient %3, %4 exponential\n  outputs o lse\n";
  };
  const double first = std::expm1(0.5), second = std::expm1(1.0), sum = first + second;
  const Outputs near = evaluated(kTwoKeys, body("0.5"), two_keys());
  EXPECT_NEAR(near.o.values[0], (10 * first + 20 * second) / sum, 1e-13);
  EXPECT_NEAR(near.lse.values[0], std::log(sum), 1e-14);
  const Outputs far = evaluated(kTwoKeys, body("500.0"), two_keys());
  EXPECT_NEAR(far.o.values[0], 20, 1e-13);
  EXPECT_NEAR(far.lse.values[0], 1000, 1e-10);
  const Outputs below = evaluated(kTwoKeys, body("-500.0"), two_keys());
  EXPECT_NEAR(below.o.values[0], -15, 1e-13);
  EXPECT_NEAR(below.lse.values[0], std::log(2.0), 1e-14);
  const Outputs none = evaluated(kTwoKeys, body("0.0"), two_keys());
  EXPECT_EQ(none.o.values[0], 0);
  EXPECT_EQ(none.lse.values[0], -kInfinity);
}

TEST(Weights, MayBeTheScores) {
  const std::string linear = std::string(kPlain) + "  normalize linear\n  outputs o\n";
  EXPECT_NEAR(evaluated(kTwoKeys, linear, two_keys()).o.values[0], 10 * 0.5 + 20 * 1, 1e-14);
}

TEST(Sigmoid, OfARowThatSeesNothingIsZero) {
  const std::string body =
      "  %0: real = const_real 0.5\n  %1: real = score\n  %2: bool = const_bool false\n"
      "  scale %0\n  score %1\n  mask %2\n  normalize sigmoid\n  outputs o\n";
  EXPECT_EQ(evaluated(kTwoKeys, body, two_keys()).o.values[0], 0);
}

TEST(Sigmoid, IsOneForInfinityAndZeroForMinusInfinity) {
  const auto at_infinity = [](const char* value) {
    const std::string body = std::string("  %0: real = const_real 0.5\n  %1: real = const_real ") +
                             value + "\n  scale %0\n  score %1\n  normalize sigmoid\n  outputs o\n";
    return evaluated(kTwoKeys, body, two_keys()).o.values[0];
  };
  EXPECT_EQ(at_infinity("inf"), 30);
  EXPECT_EQ(at_infinity("-inf"), 0);
  EXPECT_TRUE(std::isnan(at_infinity("nan")));
}

TEST(Sink, IsInTheDenominatorAlone) {
  const std::string body =
      "  %0: real = const_real 0.5\n  %1: real = score\n  %2: real = const_real 3\n"
      "  scale %0\n  score %1\n  sink %2\n  outputs o\n";
  const Outputs out = evaluated(kTwoKeys, body, two_keys());
  const double denominator = std::exp(0.5) + std::exp(1) + std::exp(3);
  EXPECT_NEAR(out.o.values[0], (10 * std::exp(0.5) + 20 * std::exp(1)) / denominator, 1e-14);
  EXPECT_NEAR(out.lse.values[0], std::log(denominator), 1e-14);
  EXPECT_DOUBLE_EQ(out.max.values[0], 1);
  EXPECT_DOUBLE_EQ(out.max_with_sink.values[0], 3);
  EXPECT_DOUBLE_EQ(out.sum_exp_with_sink.values[0], std::exp(-2.5) + std::exp(-2) + 1);
  EXPECT_DOUBLE_EQ(out.lse_without_sink.values[0], std::log(std::exp(0.5) + std::exp(1)));
}

TEST(Sink, BelowTheScoresChangesTheSumAlone) {
  const std::string body =
      "  %0: real = const_real 0.5\n  %1: real = score\n  %2: real = const_real -1\n"
      "  scale %0\n  score %1\n  sink %2\n  outputs o\n";
  const Outputs out = evaluated(kTwoKeys, body, two_keys());
  EXPECT_DOUBLE_EQ(out.max_with_sink.values[0], out.max.values[0]);
  EXPECT_DOUBLE_EQ(out.sum_exp_with_sink.values[0], out.sum_exp.values[0] + std::exp(-2));
}

TEST(Sink, IsAllThereIsInAnEmptyRow) {
  const std::string body =
      "  %0: real = const_real 0.5\n  %1: real = score\n  %2: real = const_real 3\n"
      "  %3: bool = const_bool false\n  scale %0\n  score %1\n  mask %3\n  sink %2\n  outputs o\n";
  const Outputs out = evaluated(kTwoKeys, body, two_keys());
  EXPECT_EQ(out.o.values[0], 0);
  EXPECT_EQ(out.lse.values[0], 3);
  EXPECT_EQ(out.max.values[0], -kInfinity);
  EXPECT_EQ(out.sum_exp.values[0], 0);
  EXPECT_EQ(out.max_with_sink.values[0], 3);
  EXPECT_EQ(out.sum_exp_with_sink.values[0], 1);
  EXPECT_EQ(out.lse_without_sink.values[0], -kInfinity);
}

const std::string kLengthsBody =
    "  tensor lengths_q: i32[%2]\n  tensor lengths_kv: i32[%2]\n"
    "  %0: real = const_real 0.5\n  %1: real = score\n  %2: int = const_int 3\n"
    "  scale %0\n  score %1\n  lengths q kv\n  outputs o\n";

TEST(Lengths, HideKeysAndEmptyRows) {
  const std::string dims = "B=3 Hq=1 Hkv=1 Sq=2 Skv=2 Dqk=1 Dv=1";
  Inputs inputs;
  inputs.tensors["q"] = testing::tensor({3, 1, 2, 1}, {1, 1, 1, 1, 1, 1});
  inputs.tensors["k"] = testing::tensor({3, 1, 2, 1}, {1, 2, 1, 2, 1, 2});
  inputs.tensors["v"] = testing::tensor({3, 1, 2, 1}, {10, 20, 10, 20, 10, 20});
  inputs.tensors["lengths_q"] = testing::tensor({3}, {2, 1, 2});
  inputs.tensors["lengths_kv"] = testing::tensor({3}, {2, 1, 0});
  const Outputs out = evaluated(dims, kLengthsBody, inputs);
  const double whole = 10 + 10 / (1 + std::exp(-0.5));
  EXPECT_NEAR(out.o.values[0], whole, 1e-13);
  EXPECT_NEAR(out.o.values[1], whole, 1e-13);
  EXPECT_THAT(std::vector<double>(out.o.values.begin() + 2, out.o.values.end()),
              ElementsAre(10, 0, 0, 0));
  EXPECT_THAT(std::vector<double>(out.lse.values.begin() + 2, out.lse.values.end()),
              ElementsAre(0.5, -kInfinity, -kInfinity, -kInfinity));
  inputs.tensors["lengths_kv"] = testing::tensor({3}, {2, 3, 0});
  EXPECT_EQ(refusal(dims, kLengthsBody, inputs), "lengths_kv has 3, which is outside 0..2");
}

TEST(Dropout, ScalesWhatItKeeps) {
  const std::string body =
      "  tensor keep: bool[%2]\n  %0: real = const_real 0.5\n  %1: real = score\n"
      "  %2: int = const_int 2\n  %3: int = column\n  %4: bool = load keep, %3\n"
      "  scale %0\n  score %1\n  dropout 0.75 keep %4\n  outputs o\n";
  Inputs inputs = two_keys();
  inputs.tensors["keep"] = testing::tensor({2}, {0, 1});
  const Outputs out = evaluated(kTwoKeys, body, inputs);
  EXPECT_NEAR(out.o.values[0], 4 * 20 / (1 + std::exp(-0.5)), 1e-13);
  EXPECT_NEAR(out.lse.values[0], 1 + std::log(1 + std::exp(-0.5)), 1e-14) << "before dropout";
}

// The probability of random dropout is a multiple of 2^-15, also in the scale.
TEST(Dropout, ScalesByTheRoundedProbability) {
  Inputs inputs = two_keys();
  inputs.tensors["v"] = testing::tensor({1, 1, 2, 1}, {1, 1});
  inputs.params = {{"seed", 0}, {"offset", 0}};
  const auto body = [](const std::string& p) {
    return std::string(kPlain) + "  dropout " + p + "\n  outputs o\n";
  };
  EXPECT_EQ(evaluated(kTwoKeys, body("2.0e-05"), inputs).o.values[0], 32768.0 / 32767);
  EXPECT_THAT(refusal(kTwoKeys, body("1.0e-05"), inputs), HasSubstr("is 0 for random numbers"));
}

TEST(Dropout, TakesASeed) {
  const std::string dims = "B=2 Hq=2 Hkv=1 Sq=33 Skv=65 Dqk=1 Dv=1";
  const std::string body = std::string(kPlain) + "  dropout 0.25\n  outputs o\n";
  Inputs inputs;
  inputs.tensors["q"] = testing::tensor({2, 2, 33, 1}, std::vector<double>(132, 0));
  inputs.tensors["k"] = testing::tensor({2, 1, 65, 1}, std::vector<double>(130, 0));
  inputs.tensors["v"] = testing::tensor({2, 1, 65, 1}, std::vector<double>(130, 1));
  EXPECT_EQ(refusal(dims, body, inputs), "the seed is missing");
  inputs.params = {{"seed", 7}, {"offset", 1}};
  const Outputs once = evaluated(dims, body, inputs);
  double mean = 0;
  for (const double o : once.o.values) mean += o / 132;
  EXPECT_NEAR(mean, 1, 0.02);  // 8580 draws
  EXPECT_EQ(evaluated(dims, body, inputs).o.values, once.o.values);
  inputs.params["offset"] = 2;
  EXPECT_NE(evaluated(dims, body, inputs).o.values, once.o.values);
  inputs.params = {{"seed", 8}, {"offset", 1}};
  EXPECT_NE(evaluated(dims, body, inputs).o.values, once.o.values);
  inputs.params["seed"] = 0.5;
  EXPECT_EQ(refusal(dims, body, inputs), "seed: 0.5 is not an integer from 0 to 2^53");
}

TEST(Facts, MonotoneIsChecked) {
  const std::string body =
      "  tensor n: i32[%2] monotone\n  %0: real = const_real 0.5\n  %1: real = score\n"
      "  %2: int = const_int 2\n  %3: int = column\n  %4: int = load n, %3\n"
      "  %5: int = const_int 0\n  %6: bool = ge %4, %5\n"
      "  scale %0\n  score %1\n  mask %6\n  outputs o\n";
  Inputs inputs = two_keys();
  inputs.tensors["n"] = testing::tensor({2}, {1, 1});
  EXPECT_EQ(refusal(kTwoKeys, body, inputs), "");
  inputs.tensors["n"] = testing::tensor({2}, {1, 0});
  EXPECT_EQ(refusal(kTwoKeys, body, inputs), "n is declared monotone, but element 1 is 0, after 1");
}

TEST(Facts, RunsAreChecked) {
  const std::string header =
      "attention f {\n  dims B=1 Hq=1 Hkv=1 Sq=1 Skv=6 Dqk=1 Dv=1\n  dtype f16\n"
      "  layout k=bshd o=bshd q=bshd v=bshd\n  align top_left\n";
  const std::string body =
      "  tensor n: i32[%2, %3] runs(%2, %4)\n  %0: real = const_real 0.5\n  %1: real = score\n"
      "  %2: int = const_int 2\n  %3: int = const_int 6\n  %4: int = const_int 4\n"
      "  scale %0\n  score %1\n  outputs o\n}\n";
  const auto attention = ir::parse(header + body);
  ASSERT_TRUE(attention.ok()) << attention.error().to_text();
  EXPECT_EQ(ir::to_text(*attention), header + body);
  Inputs inputs;
  inputs.tensors["q"] = testing::tensor({1, 1, 1, 1}, {1});
  for (const char* name : {"k", "v"}) {
    inputs.tensors[name] = testing::tensor({1, 1, 6, 1}, {1, 1, 1, 1, 1, 1});
  }
  const auto refused = [&](const std::vector<double>& values) {
    inputs.tensors["n"] = testing::tensor({2, 6}, values);
    const auto outputs = evaluate(*attention, inputs, {});
    return outputs.ok() ? "" : outputs.error().message;
  };
  EXPECT_EQ(refused({5, 5, 5, 5, 1, 1, 1, 1, 2, 2, 2, 2}), "");
  EXPECT_EQ(refused({5, 5, 5, 1, 1, 1, 1, 1, 2, 2, 2, 1}),
            "n is declared to have at most 2 runs, but element 11 begins another");
  EXPECT_EQ(refused({5, 5, 5, 1, 1, 1, 1, 2, 2, 2, 2, 2}),
            "n is declared to have runs of at most 4, but the run at element 11 is longer");
}

TEST(Defaults, AreOfTheElementsOwnIndexes) {
  const ir::Attention attention = testing::attention(
      kTwoKeys,
      "  tensor n: i32[%2, %3] = %8\n  %0: real = const_real 0.5\n  %1: real = score\n"
      "  %2: int = const_int 2\n  %3: int = const_int 3\n  %4: int = index 0\n"
      "  %5: int = index 1\n  %6: int = const_int 10\n  %7: int = mul %4, %6\n"
      "  %8: int = add %7, %5\n  scale %0\n  score %1\n  outputs o\n");
  const auto values = default_values(attention, attention.tensors[0]);
  ASSERT_TRUE(values.ok());
  EXPECT_THAT(values->values, ElementsAre(0, 1, 2, 10, 11, 12));
}

}  // namespace
}  // namespace attn::reference
