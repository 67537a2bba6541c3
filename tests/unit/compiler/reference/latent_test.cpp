// Values that are a part of k, and gathered keys: against attentions that say the same in other
// words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/reference/gradients.h"
#include "compiler/reference/shown.h"
#include "tests/unit/compiler/masks/spec_example.h"
#include "tests/unit/compiler/reference/problem.h"

namespace attn::reference::latent_tests {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ir::Attention of(const std::string& clauses, const std::string& dims = "D = 8") {
  return masks::testing::of_spec("attention f { dims B = 2, Hq = 4, Hkv = 2, Sq = 3, Skv = 7, " +
                                 dims + "; " + clauses + " outputs o, lse; }");
}

Outputs computed(const ir::Attention& attention, const Inputs& inputs) {
  const Result<Outputs> outputs = evaluate(attention, inputs, {.unrounded = true});
  EXPECT_TRUE(outputs.ok()) << outputs.error().message;
  return outputs.ok() ? *outputs : Outputs();
}

void expect_same(const Outputs& a, const Outputs& b) {
  for (const auto& [x, y] : {std::pair(&a.o, &b.o), std::pair(&a.lse, &b.lse)}) {
    ASSERT_EQ(x->values.size(), y->values.size());
    for (std::size_t i = 0; i < x->values.size(); ++i) {
      if (x->values[i] == -kInfinity)
        EXPECT_EQ(y->values[i], -kInfinity) << i;
      else
        EXPECT_NEAR(x->values[i], y->values[i], 1e-12) << i;
    }
  }
}

// The lists of [2, 3] rows, each with as many keys.
io::HostTensor lists(std::vector<double> values) {
  const auto listed = static_cast<std::int64_t>(values.size()) / 6;
  return testing::tensor({2, 3, listed}, std::move(values));
}

Inputs without_v(const ir::Attention& attention) {
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors.erase("v");
  return inputs;
}

TEST(ValuesOfKeys, AreTheFirstColumns) {
  const ir::Attention attention = of("values k[0..5]; mask q_idx + 2 >= kv_idx;", "Dqk = 8");
  EXPECT_EQ(attention.dims[ir::Dim::Dv], 5);
  Inputs inputs = without_v(attention);
  const Outputs made = computed(attention, inputs);
  io::HostTensor v = testing::tensor({2, 2, 7, 5}, {});
  const io::HostTensor& k = inputs.tensors.at("k");
  for (std::size_t i = 0; i < k.values.size(); ++i) {
    if (i % 8 < 5) v.values.push_back(k.values[i]);
  }
  inputs.tensors["v"] = v;
  EXPECT_FALSE(evaluate(attention, inputs, {}).ok()) << "there is no input v";
  expect_same(computed(of("mask q_idx + 2 >= kv_idx;", "Dqk = 8, Dv = 5"), inputs), made);
}

constexpr const char* kGather =
    "tensor chosen: i32[B, Sq, 4]; tensor count: i32[B, Sq]; gather chosen, count;";

TEST(Gather, SeesWhatIsListedAsOftenAsItIs) {
  const ir::Attention attention =
      of(std::string(kGather) + "score score + kv_idx / 8; mask q_idx + 3 >= kv_idx;");
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["chosen"] = lists({0, 1, 2, 3,  6,  6,  6,  0,  -1, 5, -1, 2,  //
                                    4, 4, 9, 99, -1, -1, -1, -1, 6,  3, 0,  -7});
  inputs.tensors["count"] = testing::tensor({2, 3}, {4, 4, 4, 2, 4, 3});
  const Outputs made = computed(attention, inputs);
  EXPECT_EQ(made.lse.values[13], -kInfinity) << "batch 1, head 0, row 1";
  const ir::Attention dense =
      of("tensor times: f32[B, Sq, Skv]; score score + kv_idx / 8 + log(times[b, q_raw, kv_idx]);"
         "mask q_idx + 3 >= kv_idx;");
  io::HostTensor times = testing::tensor({2, 3, 7}, std::vector<double>(42, 0));
  for (std::size_t i = 0; i < 24; ++i) {
    const double key = inputs.tensors.at("chosen").values[i];
    if (static_cast<double>(i % 4) >= inputs.tensors.at("count").values[i / 4] || key < 0) continue;
    times.values[i / 4 * 7 + static_cast<std::size_t>(key)] += 1;
  }
  inputs.tensors.erase("chosen"), inputs.tensors.erase("count");
  inputs.tensors["times"] = times;
  expect_same(computed(dense, inputs), made);
}

TEST(Gather, LengthsHideListedKeys) {
  const ir::Attention attention = of(std::string(kGather) + "lengths kv;");
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["chosen"] =
      lists({0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4});
  inputs.tensors["count"] = testing::tensor({2, 3}, std::vector<double>(6, 4));
  inputs.tensors["lengths_kv"] = testing::tensor({2}, {0, 3});
  const Outputs made = computed(attention, inputs);
  EXPECT_EQ(made.lse.values[0], -kInfinity);
  const Result<Shown> shown = shown_scores(attention, inputs, 1e9);
  ASSERT_TRUE(shown.ok());
  EXPECT_EQ(shown->scores, 4 * (3 + 1 + 2));
  inputs.tensors["chosen"].values[0] = 3;  // hidden as well
  expect_same(computed(attention, inputs), made);
}

TEST(Latent, HasNoGradients) {
  for (const std::string& clauses : {std::string("values k[0..8];"), std::string(kGather)}) {
    const ir::Attention attention = of(clauses);
    const Inputs inputs = testing::random_inputs(attention);
    const auto found = gradients(attention, inputs, inputs.tensors.at("q"), {"q"}, {});
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, ErrorCode::unsupported);
    EXPECT_THAT(found.error().message, ::testing::HasSubstr("no gradients"));
  }
}

TEST(Gather, WhatIsNoKeyIsAnError) {
  const ir::Attention attention = of(kGather);
  Inputs inputs = testing::random_inputs(attention);
  inputs.tensors["chosen"] = lists(std::vector<double>(24, 0));
  inputs.tensors["count"] = testing::tensor({2, 3}, std::vector<double>(6, 4));
  const auto message = [&](const char* tensor, std::size_t at, double value) {
    Inputs wrong = inputs;
    wrong.tensors[tensor].values[at] = value;
    const Result<Outputs> outputs = evaluate(attention, wrong, {});
    return outputs.ok() ? std::string() : outputs.error().message;
  };
  EXPECT_EQ(message("chosen", 22, 7), "chosen[1, 2, 2] is 7, outside -1..6");
  EXPECT_EQ(message("chosen", 0, -2), "chosen[0, 0, 0] is -2, outside -1..6");
  EXPECT_EQ(message("count", 3, 5), "count[1, 0] is 5, outside 0..4");
  EXPECT_EQ(message("chosen", 0, -1), "");
}

}  // namespace
}  // namespace attn::reference::latent_tests
