#include "compiler/reference/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/unit/compiler/reference/problem.h"

namespace attn::reference::evaluate_tests {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsNan;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr char kPlain[] = R"(  %0: real = const_real 0.5
  %1: real = score
  scale %0
  score %1
  outputs o lse
)";
constexpr char kCausal[] = R"(  %0: real = const_real 0.5
  %1: real = score
  %2: int = row
  %3: int = column
  %4: bool = ge %2, %3
  scale %0
  score %1
  mask %4
  outputs o lse
)";

Outputs evaluated(const ir::Attention& attention, const Inputs& inputs, Options options) {
  Result<Outputs> outputs = evaluate(attention, inputs, options);
  EXPECT_TRUE(outputs.ok()) << outputs.error().message;
  return outputs.ok() ? *outputs : Outputs{};
}

std::string error_of(const ir::Attention& attention, const Inputs& inputs) {
  const Result<Outputs> outputs = evaluate(attention, inputs, {});
  if (outputs.ok()) return "no error";
  EXPECT_EQ(outputs.error().code, ErrorCode::binding);
  return outputs.error().message;
}

TEST(Evaluate, WithoutKeysNothingIsVisible) {
  const auto attention = testing::attention("B=2 Hq=2 Hkv=1 Sq=3 Skv=0 Dqk=4 Dv=5", kCausal);
  const Outputs outputs = evaluated(attention, testing::random_inputs(attention), {});
  EXPECT_EQ(outputs.o.values, std::vector<double>(60, 0.0));
  EXPECT_EQ(outputs.lse.values, std::vector<double>(12, -kInfinity));
  EXPECT_EQ(outputs.max.values, outputs.lse.values);
  EXPECT_EQ(outputs.sum_exp.values, std::vector<double>(12, 0.0));
}

TEST(Evaluate, WithoutKeysTheSinkIsLeft) {
  auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=2 Skv=0 Dqk=4 Dv=1", kPlain);
  attention.sink = attention.dag.real(0.75);
  const Outputs outputs = evaluated(attention, testing::random_inputs(attention), {});
  EXPECT_EQ(outputs.o.values, std::vector<double>(2, 0.0));
  EXPECT_EQ(outputs.lse.values, std::vector<double>(2, 0.75));
}

TEST(Evaluate, TellsHowLongItTakesAndHowFarItIs) {
  const auto attention = testing::attention("B=2 Hq=2 Hkv=1 Sq=300 Skv=3 Dqk=4 Dv=4", kCausal);
  const Inputs inputs = testing::random_inputs(attention);
  std::vector<double> seconds;
  std::vector<std::int64_t> done;
  const Observer observer = {.begins = [&](double all) -> Status {
                               seconds.push_back(all);
                               return {};
                             },
                             .advances =
                                 [&](std::int64_t now, std::int64_t rows) {
                                   EXPECT_EQ(rows, 1200);
                                   done.push_back(now);
                                 }};
  Options options{.threads = 1};
  const Outputs unwatched = evaluated(attention, inputs, options);
  options.observer = observer;
  EXPECT_EQ(evaluated(attention, inputs, options).o.values, unwatched.o.values);
  ASSERT_EQ(seconds.size(), 1U);
  EXPECT_GT(seconds.front(), 0);
  EXPECT_LT(seconds.front(), 100);
  EXPECT_EQ(done.back(), 1200);
  EXPECT_TRUE(std::ranges::is_sorted(done));
}

TEST(Evaluate, EndsIfTheObserverSaysSo) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=2 Skv=2 Dqk=2 Dv=1", kPlain);
  Options options;
  options.observer.begins = [](double) -> Status { return {ErrorCode::invalid_argument, "no"}; };
  options.observer.advances = [](std::int64_t, std::int64_t) { ADD_FAILURE() << "a row"; };
  const auto outputs = evaluate(attention, testing::random_inputs(attention), options);
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.error().message, "no");
}

TEST(Evaluate, ByHand) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=1 Skv=2 Dqk=2 Dv=1", kPlain);
  Inputs inputs;
  inputs.tensors["q"] = testing::tensor({1, 1, 1, 2}, {1, 2});
  inputs.tensors["k"] = testing::tensor({1, 1, 2, 2}, {2, 0, 0, 2});  // scores 1 and 2
  inputs.tensors["v"] = testing::tensor({1, 1, 2, 1}, {10, 20});
  const Outputs outputs = evaluated(attention, inputs, {.unrounded = true});
  const double e = std::exp(1.0);
  EXPECT_NEAR(outputs.o.values[0], (10 + 20 * e) / (1 + e), 1e-14);
  EXPECT_NEAR(outputs.lse.values[0], std::log(e + e * e), 1e-15);
  EXPECT_EQ(outputs.o.dtype, DType::f64);
  EXPECT_EQ(outputs.o.dims, (std::vector<std::int64_t>{1, 1, 1, 1}));
  EXPECT_EQ(outputs.lse.dims, (std::vector<std::int64_t>{1, 1, 1}));
}

TEST(Evaluate, RoundsInputsAndOButNotLse) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=1 Skv=1 Dqk=1 Dv=1", kPlain);
  Inputs inputs;
  inputs.tensors["q"] = testing::tensor({1, 1, 1, 1}, {1.001});
  inputs.tensors["k"] = testing::tensor({1, 1, 1, 1}, {2.01});
  inputs.tensors["v"] = testing::tensor({1, 1, 1, 1}, {1.01});
  const Outputs rounded = evaluated(attention, inputs, {});
  EXPECT_EQ(rounded.o.values[0], round_to(DType::bf16, 1.01));
  EXPECT_EQ(rounded.lse.values[0], 0.5 * round_to(DType::bf16, 2.01));
  EXPECT_EQ(rounded.o.dtype, DType::f32);
  const Outputs unrounded = evaluated(attention, inputs, {.unrounded = true});
  EXPECT_EQ(unrounded.o.values[0], 1.01);
  EXPECT_EQ(unrounded.lse.values[0], 0.5 * (1.001 * 2.01));
}

TEST(Evaluate, LargeScoresDoNotOverflow) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=1 Skv=2 Dqk=1 Dv=1", kPlain);
  Inputs inputs;
  inputs.tensors["q"] = testing::tensor({1, 1, 1, 1}, {2000});
  inputs.tensors["k"] = testing::tensor({1, 1, 2, 1}, {1, 1});
  inputs.tensors["v"] = testing::tensor({1, 1, 2, 1}, {1, 3});
  const Outputs outputs = evaluated(attention, inputs, {.unrounded = true});
  EXPECT_EQ(outputs.o.values[0], 2);
  EXPECT_NEAR(outputs.lse.values[0], 1000 + std::log(2.0), 1e-12);
}

TEST(Evaluate, ARowWithNothingVisibleIsZero) {
  // A row sees the columns before its own, so row 0 sees nothing.
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=3 Skv=2 Dqk=4 Dv=3",
                                            R"(  %0: real = const_real 0.5
  %1: real = score
  %2: int = row
  %3: int = column
  %4: bool = lt %3, %2
  scale %0
  score %1
  mask %4
  outputs o lse
)");
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["v"].values[0] = kNaN;  // of a column that row 0 does not see
  const Outputs outputs = evaluated(attention, inputs, {});
  for (std::size_t d = 0; d < 3; ++d) EXPECT_EQ(outputs.o.values[d], 0);
  EXPECT_EQ(outputs.lse.values[0], -kInfinity);
  EXPECT_TRUE(std::isfinite(outputs.lse.values[1]));
}

TEST(Evaluate, ScoresOfMinusInfinityAreHiddenToo) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=2 Skv=2 Dqk=4 Dv=3",
                                            R"(  %0: real = const_real 0.5
  %1: real = const_real -inf
  scale %0
  score %1
  outputs o lse
)");
  const Outputs outputs = evaluated(attention, testing::random_inputs(attention), {});
  EXPECT_THAT(outputs.o.values, Each(0));
  EXPECT_THAT(outputs.lse.values, Each(-kInfinity));
}

TEST(Evaluate, NaNIsNeverHidden) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=3 Skv=3 Dqk=4 Dv=3", kCausal);
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["k"].values[4] = kNaN;  // of column 1, which row 0 does not see
  const Outputs outputs = evaluated(attention, inputs, {});
  for (std::size_t d = 0; d < 3; ++d) EXPECT_TRUE(std::isfinite(outputs.o.values[d]));
  for (std::size_t d = 3; d < 9; ++d) EXPECT_THAT(outputs.o.values[d], IsNan());
  EXPECT_TRUE(std::isfinite(outputs.lse.values[0]));
  EXPECT_THAT(outputs.lse.values[1], IsNan());
  EXPECT_THAT(outputs.lse.values[2], IsNan());
}

TEST(Evaluate, HeadsOfAGroupShareKeysAndValues) {
  const auto grouped = testing::attention("B=2 Hq=6 Hkv=2 Sq=3 Skv=4 Dqk=5 Dv=3", kCausal);
  const auto plain = testing::attention("B=2 Hq=6 Hkv=6 Sq=3 Skv=4 Dqk=5 Dv=3", kCausal);
  const Inputs inputs = testing::random_inputs(grouped);
  Inputs repeated = testing::random_inputs(plain);
  for (const char* name : {"k", "v"}) {
    const io::HostTensor& from = inputs.tensors.at(name);
    io::HostTensor& to = repeated.tensors.at(name);
    const std::size_t head = static_cast<std::size_t>(from.dims[2] * from.dims[3]);
    for (std::size_t i = 0; i < to.values.size(); ++i) {
      const std::size_t b = i / head / 6, h = i / head % 6;
      to.values[i] = from.values[(b * 2 + h / 3) * head + i % head];
    }
  }
  const Outputs expected = evaluated(plain, repeated, {});
  const Outputs actual = evaluated(grouped, inputs, {});
  EXPECT_EQ(actual.o.values, expected.o.values);
  EXPECT_EQ(actual.lse.values, expected.lse.values);
}

TEST(Evaluate, DoesNotDependOnTheNumberOfThreads) {
  const auto attention = testing::attention("B=2 Hq=3 Hkv=1 Sq=17 Skv=31 Dqk=9 Dv=5", kCausal);
  const Inputs inputs = testing::random_inputs(attention);
  const Outputs one = evaluated(attention, inputs, {.threads = 1});
  const Outputs seven = evaluated(attention, inputs, {.threads = 7});
  EXPECT_EQ(one.o.values, seven.o.values);
  EXPECT_EQ(one.lse.values, seven.lse.values);
}

TEST(Evaluate, TheScaleMayBeAParam) {
  const auto with_param = testing::attention("B=1 Hq=1 Hkv=1 Sq=2 Skv=3 Dqk=4 Dv=3",
                                             R"(  param temperature: f32
  %0: real = param temperature
  %1: real = score
  scale %0
  score %1
  outputs o lse
)");
  const auto constant = testing::attention("B=1 Hq=1 Hkv=1 Sq=2 Skv=3 Dqk=4 Dv=3", kPlain);
  Inputs inputs = testing::random_inputs(constant);
  const Outputs expected = evaluated(constant, inputs, {});
  inputs.params["temperature"] = 0.5;
  EXPECT_EQ(evaluated(with_param, inputs, {}).o.values, expected.o.values);
}

constexpr char kDocument[] = R"(  tensor doc: i32[%0]
  param shift: i32
  %0: int = const_int 4
  %1: int = row
  %2: int = param shift
  %3: int = add %1, %2
  %4: int = load doc, %3
  %5: int = column
  %6: int = load doc, %5
  %7: bool = eq %4, %6
  %8: real = const_real 0.5
  %9: real = score
  scale %8
  score %9
  mask %7
  outputs o lse
)";

Inputs document_inputs(const ir::Attention& attention) {
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["doc"] = testing::tensor({4}, {0, 0, 1, 1});
  inputs.params["shift"] = 0;
  return inputs;
}

TEST(Evaluate, AnIndexOutOfRangeNamesTensorIndexAndPlace) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=3 Skv=4 Dqk=4 Dv=3", kDocument);
  Inputs inputs = document_inputs(attention);
  EXPECT_EQ(error_of(attention, inputs), "no error");
  inputs.params["shift"] = 2;
  EXPECT_EQ(error_of(attention, inputs),
            "doc[q_idx + shift]: index 0 is 4, outside 0..3, at b 0, h 0, row 2, column 0");
  inputs.params["shift"] = -1;
  EXPECT_THAT(error_of(attention, inputs), HasSubstr("index 0 is -1, outside 0..3"));
}

TEST(Evaluate, InputsAreChecked) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=3 Skv=4 Dqk=4 Dv=3", kDocument);
  const auto error = [&](auto change) {
    Inputs inputs = document_inputs(attention);
    change(inputs);
    return error_of(attention, inputs);
  };
  EXPECT_EQ(error([](Inputs& i) { i.tensors.erase("k"); }), "the tensor k is missing");
  EXPECT_EQ(error([](Inputs& i) { i.tensors["x"] = {}; }), "x is not a tensor of this attention");
  EXPECT_EQ(error([](Inputs& i) { i.params.erase("shift"); }), "the param shift is missing");
  EXPECT_EQ(error([](Inputs& i) { i.params["x"] = 1; }), "x is not a param of this attention");
  EXPECT_EQ(error([](Inputs& i) {
              i.tensors["v"].dims = {1, 1, 3, 4};
            }),
            "v has dims [1, 1, 3, 4], but the attention expects [1, 1, 4, 3]");
  EXPECT_EQ(error([](Inputs& i) { i.tensors["v"].values.pop_back(); }),
            "v has dims [1, 1, 4, 3], but the attention expects [1, 1, 4, 3]");
  EXPECT_EQ(error([](Inputs& i) { i.tensors["doc"].values[1] = 0.5; }),
            "doc: 0.5 is not a value of i32");
  EXPECT_EQ(error([](Inputs& i) { i.tensors["doc"].values[1] = 2147483648.0; }),
            "doc: 2147483648 is not a value of i32");
  EXPECT_EQ(error([](Inputs& i) { i.params["shift"] = 1.5; }), "shift: 1.5 is not a value of i32");
}

TEST(Evaluate, OpenDimensionsAreRefused) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=? Skv=4 Dqk=4 Dv=3", kPlain);
  const Result<Outputs> outputs = evaluate(attention, {}, {});
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(outputs.error().message, HasSubstr("--bind Sq=SIZE"));
}

}  // namespace
}  // namespace attn::reference::evaluate_tests
