// Gradients against central differences of the forward, for every clause that affects them.
#include "compiler/reference/gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/compiler/reference/problem.h"

namespace attn::reference::gradients_tests {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr char kPlain[] = R"(  %0: real = const_real 0.5
  %1: real = score
  scale %0
  score %1
  outputs o
)";

// score' = tanh(score * t[h]) + u[(row + column) % 3], a sink tanh(t[h]), causal.
constexpr char kLearned[] = R"(  learn t: f32[%9]
  learn u: f32[%10]
  %0: real = const_real 0.5
  %1: real = score
  %2: int = head
  %3: real = load t %2
  %4: real = mul %1, %3
  %5: real = tanh %4
  %6: int = row
  %7: int = column
  %8: int = add %6, %7
  %9: int = const_int 4
  %10: int = const_int 3
  %11: int = mod %8, %10
  %12: real = load u %11
  %13: real = add %5, %12
  %14: bool = ge %6, %7
  %15: real = tanh %3
  scale %0
  score %13
  mask %14
  sink %15
  outputs o
)";

constexpr char kRandomDropout[] = R"(  %0: real = const_real 0.5
  %1: real = score
  scale %0
  score %1
  dropout 0.3
  outputs o
)";

constexpr char kLengths[] = R"(  tensor lengths_q: i32[%2]
  tensor lengths_kv: i32[%2]
  lengths q kv
  %0: real = const_real 0.5
  %1: real = score
  %2: int = const_int 3
  scale %0
  score %1
  outputs o
)";

io::HostTensor random_d_lse(const ir::Attention& attention) {
  using ir::Dim;
  const ir::Dims& d = attention.dims;
  return testing::random_tensor({d[Dim::B], d[Dim::Hq], d[Dim::Sq]}, 10);
}

double loss(const ir::Attention& attention, const Inputs& inputs, const io::HostTensor& d_o) {
  const Result<Outputs> outputs = evaluate(attention, inputs, {.unrounded = true});
  EXPECT_TRUE(outputs.ok()) << outputs.error().message;
  double sum = 0;
  for (std::size_t i = 0; i < d_o.values.size(); ++i) {
    sum += outputs->o.values[i] * d_o.values[i];
  }
  if (!attention.reads_d_lse) return sum;
  const io::HostTensor d_lse = random_d_lse(attention);
  for (std::size_t i = 0; i < d_lse.values.size(); ++i) {
    const double lse = outputs->lse.values[i];
    sum += std::isinf(lse) ? 0 : lse * d_lse.values[i];
  }
  return sum;
}

double difference(const ir::Attention& attention, Inputs inputs, const io::HostTensor& d_o,
                  const std::string& name, std::size_t element) {
  constexpr double kStep = 1e-5;
  double& value = inputs.tensors[name].values[element];
  const double middle = value;
  value = middle + kStep;
  const double up = loss(attention, inputs, d_o);
  value = middle - kStep;
  return (up - loss(attention, inputs, d_o)) / (2 * kStep);
}

std::vector<std::string> names_of(const ir::Attention& attention) {
  std::vector<std::string> names = {"q", "k", "v"};
  for (const ir::CapturedTensor& tensor : attention.tensors) {
    if (tensor.learned) names.push_back(tensor.name);
  }
  return names;
}

Gradients computed(const ir::Attention& attention, const Inputs& inputs, const io::HostTensor& d_o,
                   Options options = {.unrounded = true}) {
  const io::HostTensor d_lse = random_d_lse(attention);
  if (attention.reads_d_lse && options.d_lse == nullptr) options.d_lse = &d_lse;
  Result<Gradients> result = gradients(attention, inputs, d_o, names_of(attention), options);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : Gradients{};
}

io::HostTensor random_d_o(const ir::Attention& attention) {
  using ir::Dim;
  const ir::Dims& d = attention.dims;
  return testing::random_tensor({d[Dim::B], d[Dim::Hq], d[Dim::Sq], d[Dim::Dv]}, 9);
}

// Every element of small tensors, every seventh of the others.
void expect_differences(const ir::Attention& attention, const Inputs& inputs) {
  const io::HostTensor d_o = random_d_o(attention);
  const Gradients result = computed(attention, inputs, d_o);
  for (const auto& [name, tensor] : result.of) {
    ASSERT_EQ(tensor.dims, inputs.tensors.at(name).dims);
    const std::size_t step = tensor.values.size() < 20 ? 1 : 7;
    for (std::size_t i = 0; i < tensor.values.size(); i += step) {
      EXPECT_NEAR(tensor.values[i], difference(attention, inputs, d_o, name, i), 2e-8)
          << name << ", element " << i;
    }
  }
}

TEST(Gradients, OfPlainAttentionInGroupsWithOtherWidthsOfV) {
  const auto attention = testing::attention("B=2 Hq=4 Hkv=2 Sq=3 Skv=5 Dqk=3 Dv=4", kPlain);
  expect_differences(attention, testing::random_inputs(attention));
}

TEST(Gradients, OfLearnedTensorsInScoreAndSink) {
  const auto attention = testing::attention("B=2 Hq=4 Hkv=1 Sq=4 Skv=5 Dqk=3 Dv=2", kLearned);
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["t"] = testing::random_tensor({4}, 5);
  inputs.tensors["u"] = testing::random_tensor({3}, 6);
  expect_differences(attention, inputs);
}

TEST(Gradients, OfWhatDropoutKeeps) {
  const auto attention = testing::attention("B=1 Hq=2 Hkv=2 Sq=4 Skv=6 Dqk=3 Dv=3", kRandomDropout);
  Inputs inputs = testing::random_inputs(attention);
  inputs.params = {{"seed", 3}, {"offset", 4}};
  expect_differences(attention, inputs);
}

// The attention with sigmoid in place of softmax.
std::string with_sigmoid(std::string body) {
  const std::string outputs = "  outputs o\n";
  return body.replace(body.find(outputs), outputs.size(), "  normalize sigmoid\n" + outputs);
}

TEST(Gradients, OfSigmoid) {
  const auto plain =
      testing::attention("B=2 Hq=4 Hkv=2 Sq=3 Skv=5 Dqk=3 Dv=4", with_sigmoid(kPlain));
  expect_differences(plain, testing::random_inputs(plain));
  const auto dropped =
      testing::attention("B=1 Hq=2 Hkv=2 Sq=4 Skv=6 Dqk=3 Dv=3", with_sigmoid(kRandomDropout));
  Inputs inputs = testing::random_inputs(dropped);
  inputs.params = {{"seed", 3}, {"offset", 4}};
  expect_differences(dropped, inputs);
}

TEST(Gradients, OfSigmoidByLearnedTensors) {
  std::string body = with_sigmoid(kLearned);
  body.erase(body.find("  sink %15\n"), std::string_view("  sink %15\n").size());
  const auto attention = testing::attention("B=2 Hq=4 Hkv=1 Sq=4 Skv=5 Dqk=3 Dv=2", body);
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["t"] = testing::random_tensor({4}, 5);
  inputs.tensors["u"] = testing::random_tensor({3}, 6);
  expect_differences(attention, inputs);
}

// The attention with another line that makes weights.
std::string with_weights(std::string body, const std::string& line) {
  const std::string outputs = "  outputs o\n";
  return body.replace(body.find(outputs), outputs.size(), line + outputs);
}

TEST(Gradients, OfScoresAsWeights) {
  const auto plain = testing::attention("B=2 Hq=4 Hkv=2 Sq=3 Skv=5 Dqk=3 Dv=4",
                                        with_weights(kPlain, "  normalize linear\n"));
  expect_differences(plain, testing::random_inputs(plain));
  std::string body = with_weights(kLearned, "  normalize linear\n");
  body.erase(body.find("  sink %15\n"), std::string_view("  sink %15\n").size());
  const auto learned = testing::attention("B=2 Hq=4 Hkv=1 Sq=4 Skv=5 Dqk=3 Dv=2", body);
  Inputs inputs = testing::random_inputs(learned);
  inputs.tensors["t"] = testing::random_tensor({4}, 5);
  inputs.tensors["u"] = testing::random_tensor({3}, 6);
  expect_differences(learned, inputs);
}

// Softpick, with (exponential) and without the exponential of the score.
constexpr const char* kQuotient = R"(
  %0: real = const_real 0.5
  %1: real = score
  %2: real = UNIT
  %3: real = sub %1, %2
  %4: real = const_real 0.0
  %5: real = max %3, %4
  %6: real = abs %3
  scale %0
  score %1
  normalize quotient
  quotient %5, %6EXPONENTIAL
  outputs o
  grad q k v lse
)";

std::string quotient(const std::string& unit, const std::string& exponential) {
  std::string body = kQuotient;
  body.replace(body.find("UNIT"), 4, unit);
  return body.replace(body.find("EXPONENTIAL"), 11, exponential);
}

TEST(Gradients, OfWeightsOverASum) {
  for (const std::string& body :
       {quotient("unit", " exponential"), quotient("const_real 0.25", "")}) {
    const auto attention = testing::attention("B=2 Hq=4 Hkv=2 Sq=3 Skv=5 Dqk=3 Dv=4", body);
    expect_differences(attention, testing::random_inputs(attention));
  }
}

// tanh(o) * t[row, column] + o * u[head] where o is positive; rows past the lengths have none.
constexpr const char* kEpilogue = R"(
  tensor lengths_q: i32[%2]
  learn t: f32[%3, %4]
  learn u: f32[%2]
  %0: real = const_real 0.5
  %1: real = score
  %2: int = const_int 2
  %3: int = const_int 4
  %4: int = const_int 3
  %5: real = const_real 0.0
  %6: real = output
  %7: int = row
  %8: int = depth
  %9: real = load t %7, %8
  %10: real = tanh %6
  %11: real = mul %10, %9
  %12: int = head
  %13: real = load u %12
  %14: real = mul %6, %13
  %15: bool = gt %6, %5
  %16: real = select %15, %14, %5
  %17: real = add %11, %16
  scale %0
  score %1
  epilogue %17
  lengths q
  outputs o
  grad q k v t u lse
)";

TEST(Gradients, ThroughAnEpilogue) {
  const auto attention = testing::attention("B=2 Hq=2 Hkv=1 Sq=4 Skv=5 Dqk=2 Dv=3", kEpilogue);
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["lengths_q"] = testing::tensor({2}, {4, 2});
  inputs.tensors["t"] = testing::random_tensor({4, 3}, 5);
  inputs.tensors["u"] = testing::random_tensor({2}, 6);
  expect_differences(attention, inputs);
  const Gradients result = computed(attention, inputs, random_d_o(attention));
  const std::vector<double>& o = result.outputs.o.values;
  EXPECT_THAT(std::vector<double>(o.end() - 6, o.end()), Each(0.0)) << "rows past the length";
}

TEST(Gradients, OfLengths) {
  const auto attention = testing::attention("B=3 Hq=2 Hkv=1 Sq=4 Skv=5 Dqk=2 Dv=2", kLengths);
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["lengths_q"] = testing::tensor({3}, {4, 2, 0});
  inputs.tensors["lengths_kv"] = testing::tensor({3}, {3, 0, 5});
  expect_differences(attention, inputs);
  const Gradients result = computed(attention, inputs, random_d_o(attention));
  const auto& d_k = result.of.at("k").values;
  // Batch 1 has no keys, batch 2 no rows.
  EXPECT_THAT(std::vector<double>(d_k.begin() + 10, d_k.end()), Each(0.0));
}

TEST(Gradients, OfRowsThatSeeNothingAreZero) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=2 Skv=2 Dqk=2 Dv=2", R"(
  learn t: f32[%5]
  %0: real = const_real 0.5
  %1: real = score
  %2: bool = const_bool false
  %3: int = head
  %4: real = load t %3
  %5: int = const_int 1
  scale %0
  score %1
  mask %2
  sink %4
  outputs o
)");
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["t"] = testing::tensor({1}, {2});
  for (const auto& [name, tensor] : computed(attention, inputs, random_d_o(attention)).of) {
    EXPECT_THAT(tensor.values, Each(0.0)) << name;
  }
}

std::string through_lse(std::string body, const std::string& names) {
  return std::move(body) + "  grad " + names + " lse\n";
}

TEST(Gradients, ThroughLse) {
  const auto plain =
      testing::attention("B=2 Hq=6 Hkv=2 Sq=3 Skv=5 Dqk=4 Dv=3", through_lse(kPlain, "q k v"));
  expect_differences(plain, testing::random_inputs(plain));
  const auto dropped = testing::attention("B=1 Hq=2 Hkv=1 Sq=5 Skv=7 Dqk=2 Dv=3",
                                          through_lse(kRandomDropout, "q k v"));
  Inputs inputs = testing::random_inputs(dropped);
  inputs.params = {{"seed", 3}, {"offset", 4}};
  expect_differences(dropped, inputs);
}

TEST(Gradients, ThroughLseWithLearnedTensorsInScoreAndSink) {
  const auto attention = testing::attention("B=2 Hq=4 Hkv=2 Sq=4 Skv=3 Dqk=2 Dv=2",
                                            through_lse(kLearned, "q k v t u"));
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["t"] = testing::random_tensor({4}, 5);
  inputs.tensors["u"] = testing::random_tensor({3}, 6);
  expect_differences(attention, inputs);
}

// lse of the first row is -inf, and of the second, which sees no key either, the sink.
TEST(Gradients, ThroughTheLseOfRowsThatSeeNothing) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=3 Skv=2 Dqk=2 Dv=2", R"(
  tensor lengths_q: i32[%5]
  learn t: f32[%5]
  lengths q
  %0: real = const_real 0.5
  %1: real = score
  %2: bool = const_bool false
  %3: int = head
  %4: real = load t %3
  %5: int = const_int 1
  scale %0
  score %1
  mask %2
  sink %4
  outputs o
  grad q k v t lse
)");
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["t"] = testing::tensor({1}, {2});
  inputs.tensors["lengths_q"] = testing::tensor({1}, {2});
  io::HostTensor d_lse = testing::tensor({1, 1, 3}, {5, -3, std::nan("")});
  const Options options{.unrounded = true, .d_lse = &d_lse};
  for (const auto& [name, tensor] :
       computed(attention, inputs, random_d_o(attention), options).of) {
    EXPECT_THAT(tensor.values, Each(name == "t" ? 2.0 : 0.0)) << name;
  }
}

TEST(Gradients, OfHiddenScoresAreNeverLookedAt) {
  // log(score - 100), which is NaN, but hidden in all columns except the first, where a select does
  // not take it.
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=1 Skv=3 Dqk=2 Dv=2", R"(
  %0: real = const_real 0.5
  %1: real = score
  %2: real = const_real 100.0
  %3: real = sub %1, %2
  %4: real = log %3
  %5: int = column
  %6: int = const_int 1
  %7: bool = lt %5, %6
  %8: real = select %7, %1, %4
  scale %0
  score %8
  mask %7
  outputs o
)");
  const Inputs inputs = testing::random_inputs(attention);
  const Gradients result = computed(attention, inputs, random_d_o(attention));
  for (const auto& [name, tensor] : result.of) {
    for (const double value : tensor.values) EXPECT_TRUE(std::isfinite(value)) << name;
  }
}

TEST(Gradients, DoNotDependOnThreads) {
  for (const char* body : {kPlain, kLearned}) {
    const auto attention = testing::attention("B=2 Hq=4 Hkv=2 Sq=4 Skv=5 Dqk=3 Dv=3", body);
    Inputs inputs = testing::random_inputs(attention);
    if (body == kLearned) {
      inputs.tensors["t"] = testing::random_tensor({4}, 5);
      inputs.tensors["u"] = testing::random_tensor({3}, 6);
    }
    const io::HostTensor d_o = random_d_o(attention);
    const Gradients one = computed(attention, inputs, d_o, {.unrounded = true, .threads = 1});
    const Gradients four = computed(attention, inputs, d_o, {.unrounded = true, .threads = 4});
    for (const auto& [name, tensor] : one.of) EXPECT_EQ(tensor.values, four.of.at(name).values);
  }
}

TEST(Gradients, TheirForwardIsThatOfEvaluate) {
  const auto attention = testing::attention("B=2 Hq=4 Hkv=2 Sq=4 Skv=5 Dqk=3 Dv=3", kPlain);
  const Inputs inputs = testing::random_inputs(attention);
  for (const bool unrounded : {false, true}) {
    const Options options = {.unrounded = unrounded};
    const Gradients result = computed(attention, inputs, random_d_o(attention), options);
    const Result<Outputs> outputs = evaluate(attention, inputs, options);
    ASSERT_TRUE(outputs.ok());
    EXPECT_EQ(result.outputs.o.values, outputs->o.values);
    EXPECT_EQ(result.outputs.lse.values, outputs->lse.values);
    EXPECT_EQ(result.of.at("q").dtype, outputs->o.dtype);
  }
}

// One row that sees two keys with weights of a half: P (dP - delta) is 0.5 (dP - delta) each.
constexpr const char* kShared = R"(
  learn c: f32[%4]
  learn s: f32[%4]
  %0: real = const_real 0.0
  %1: real = score
  %2: int = const_int 0
  %3: real = load c %2
  %4: int = const_int 1
  %5: real = add %1, %3
  scale %0
  score %5
  outputs o
)";

TEST(Gradients, HeadsRunSideBySideAlsoWhereSomethingIsLearned) {
  const auto tensor = [](std::int64_t elements) { return testing::tensor({elements}, {}); };
  EXPECT_EQ(heads_at_once(16, {{"q", tensor(1 << 30)}}), 16);
  EXPECT_EQ(heads_at_once(16, {{"q", tensor(1 << 30)}, {"bias", tensor(512 * 512)}}), 16);
  EXPECT_EQ(heads_at_once(16, {{"bias", tensor(1 << 22)}}), 4);
  EXPECT_EQ(heads_at_once(16, {{"bias", tensor(1 << 30)}}), 1);
}

TEST(Gradients, SizesAreThoseOfTheTerms) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=1 Skv=2 Dqk=1 Dv=1", kShared);
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["v"] = testing::tensor({1, 1, 2, 1}, {1, 4});
  inputs.tensors["c"] = inputs.tensors["s"] = testing::tensor({1}, {2});
  const io::HostTensor d_o = testing::tensor({1, 1, 1, 1}, {2});
  const Gradients result = computed(attention, inputs, d_o, {.unrounded = true, .sizes = true});
  // A constant for the whole row changes nothing, but has a size: dP is 2 and 8, delta and its only
  // product are 5.
  EXPECT_THAT(result.of.at("c").values, Each(0.0));
  EXPECT_DOUBLE_EQ(result.sizes.at("c").values[0],
                   std::sqrt(0.25 * (2 * 2 + 2 * 25) + 0.25 * (8 * 8 + 2 * 25)));
  EXPECT_THAT(result.sizes.at("v").values, Each(1.0));
  EXPECT_THAT(result.sizes.at("q").values, Each(0.0)) << "the scale is 0";
  EXPECT_THAT(result.sizes.at("s").values, Each(0.0)) << "nothing reads it";
}

TEST(Gradients, SizesOfAmaxAreThoseOfWhatItIsTakenOf) {
  Inputs inputs;
  inputs.tensors["q"] = testing::tensor({1, 1, 1, 1}, {1});
  inputs.tensors["k"] = testing::tensor({1, 1, 1, 1}, {4});
  inputs.tensors["v"] = testing::tensor({1, 1, 1, 1}, {3});
  std::string scales;
  for (const ir::Scale& scale : ir::kScales) {
    scales += "  tensor " + std::string(scale.name) + ": f32[%2]\n";
    inputs.tensors[std::string(scale.name)] = testing::tensor({1}, {1});
  }
  const auto attention = testing::attention(
      "B=1 Hq=1 Hkv=1 Sq=1 Skv=1 Dqk=1 Dv=1",
      "  dtype e4m3\n" + scales +
          "  %0: real = const_real 0.5\n  %1: real = score\n  %2: int = const_int 1\n  scale %0\n"
          "  score %1\n  quantize o=e4m3 do=e4m3 gradients=e4m3\n  grad q k v\n  outputs o\n");
  const Gradients result =
      computed(attention, inputs, testing::tensor({1, 1, 1, 1}, {2}), {.sizes = true});
  // One key: ds is 0, but dP, delta and its only product are 6.
  EXPECT_EQ(result.amax.at("amax_dp").values[0], 0);
  const double size = 0.5 * std::sqrt(3) * 6;
  EXPECT_DOUBLE_EQ(result.amax_sizes.at("amax_dp"), size);
  EXPECT_DOUBLE_EQ(result.amax_sizes.at("amax_dq"), 4 * size);
  EXPECT_DOUBLE_EQ(result.amax_sizes.at("amax_dk"), size);
  EXPECT_DOUBLE_EQ(result.amax_sizes.at("amax_dv"), 2);
}

TEST(Gradients, SizesChangeNothingElseAndAreAtLeastASingleTerm) {
  const auto attention = testing::attention("B=1 Hq=2 Hkv=1 Sq=3 Skv=1 Dqk=2 Dv=2", kLearned);
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["t"] = testing::random_tensor({4}, 5);
  inputs.tensors["u"] = testing::random_tensor({3}, 6);
  const io::HostTensor d_o = random_d_o(attention);
  const Gradients without = computed(attention, inputs, d_o);
  const Gradients with = computed(attention, inputs, d_o, {.unrounded = true, .sizes = true});
  EXPECT_TRUE(without.sizes.empty());
  ASSERT_EQ(with.sizes.size(), with.of.size());
  for (const auto& [name, tensor] : with.of) {
    EXPECT_EQ(tensor.values, without.of.at(name).values) << name;
    EXPECT_EQ(tensor.dims, with.sizes.at(name).dims) << name;
  }
  // An element of dq has one term here, since there is one key.
  for (std::size_t i = 0; i < with.of.at("q").values.size(); ++i) {
    EXPECT_GT(with.sizes.at("q").values[i], std::abs(with.of.at("q").values[i]));
  }
}

TEST(Gradients, AreRoundedToWhatTheyBelongTo) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=2 Skv=3 Dqk=2 Dv=2", kPlain);
  const Inputs inputs = testing::random_inputs(attention);
  for (const auto& [name, tensor] : computed(attention, inputs, random_d_o(attention), {}).of) {
    for (const double value : tensor.values) EXPECT_EQ(value, round_to(DType::bf16, value)) << name;
  }
}

TEST(Gradients, WhatIsRefused) {
  const auto attention = testing::attention("B=1 Hq=1 Hkv=1 Sq=2 Skv=3 Dqk=2 Dv=2", kPlain);
  const Inputs inputs = testing::random_inputs(attention);
  const auto narrow = gradients(attention, inputs, testing::tensor({1, 1, 2}, {1, 2}), {"q"}, {});
  ASSERT_FALSE(narrow.ok());
  EXPECT_EQ(narrow.error().code, ErrorCode::binding);
  EXPECT_THAT(narrow.error().message, HasSubstr("do has dims [1, 1, 2]"));
  const io::HostTensor d_lse = random_d_lse(attention);
  const auto unread = gradients(attention, inputs, random_d_o(attention), {"q"}, {.d_lse = &d_lse});
  ASSERT_FALSE(unread.ok());
  EXPECT_THAT(unread.error().message, HasSubstr("`lse` is not in the `grad` clause"));
  ir::Attention through = attention;
  through.gradients = {"q"};
  through.reads_d_lse = true;
  const auto missing = gradients(through, inputs, random_d_o(attention), {"q"}, {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message, "dlse is missing");
  const io::HostTensor short_one = testing::tensor({1, 1, 1}, {1});
  const auto other =
      gradients(through, inputs, random_d_o(attention), {"q"}, {.d_lse = &short_one});
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, HasSubstr("dlse has dims [1, 1, 1]"));
  const auto unknown = gradients(attention, inputs, random_d_o(attention), {"bias"}, {});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace attn::reference::gradients_tests
