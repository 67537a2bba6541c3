#include "tools/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "runtime/io/npy.h"
#include "tests/unit/tools/spec_text.h"

namespace attn::tools {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kSpec = R"(attention t {
  dims B = 1, Hq = 2, Hkv = 1, Sq = 3, Skv = 8, D = 8;
  tensor doc: i32[B, Skv];
  tensor seen: bool[Skv];
  tensor slope: f32[Hq];
  param c: f32;
  param n: i32;
  score score * c + slope[h];
  mask doc[b, kv_idx] < n && seen[kv_idx];
  outputs o;
})";

const InputTexts kIntegers = {{"doc", "zeros"}, {"seen", "const:1"}, {"n", "2"}};

TEST(Inputs, FloatsAreRandomAndTheSameEveryTime) {
  const Spec spec = spec_of(kSpec);
  const Inputs first = make_inputs(spec.attention, kIntegers, Missing::refuse).value();
  const Inputs second = make_inputs(spec.attention, kIntegers, Missing::refuse).value();
  EXPECT_EQ(first.values.tensors.at("q").values, second.values.tensors.at("q").values);
  EXPECT_NE(first.values.tensors.at("k").values, first.values.tensors.at("v").values);
  EXPECT_EQ(first.values.tensors.at("q").dims, (std::vector<std::int64_t>{1, 2, 3, 8}));
  EXPECT_EQ(first.values.params.at("n"), 2);
  EXPECT_EQ(first.origins[0], std::make_pair(std::string("q"), std::string("random")));
}

TEST(Inputs, GradientsNeedTheCotangentOfO) {
  const Spec spec = spec_of(kSpec);
  const auto inputs = make_inputs(spec.attention, kIntegers, Missing::refuse, Needs::gradients);
  ASSERT_TRUE(inputs.ok()) << inputs.error().message;
  const io::HostTensor& cotangent = inputs->values.tensors.at(kCotangent);
  EXPECT_EQ(cotangent.dims, (std::vector<std::int64_t>{1, 2, 3, 8}));
  EXPECT_EQ(cotangent.dtype, spec.attention.dtype);
  InputTexts texts = kIntegers;
  texts[kCotangent] = "zeros";
  EXPECT_FALSE(make_inputs(spec.attention, texts, Missing::refuse).ok());
}

TEST(Inputs, ATensorThatIsGivenNoValueHoldsItsDefaultOrThePattern) {
  const Spec spec = spec_of(R"(attention t {
    dims B = 1, Hq = 1, Sq = 8, Skv = 8, D = 8;
    tensor doc: i32[Skv] monotone = 8 * i0 // Skv;
    tensor seen: i32[Skv];
    mask doc[q_idx] == doc[kv_idx] && seen[kv_idx] > 0;
    outputs o;
  })");
  EXPECT_THAT(default_tensor(spec.attention, "doc").value().values,
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(default_tensor(spec.attention, "seen").value().values,
              ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_FALSE(default_tensor(spec.attention, "dock").ok());
}

TEST(Inputs, MasksNeedOnlyWhatTheyRead) {
  const Spec spec = spec_of(kSpec);
  const Inputs inputs = make_inputs(spec.attention, {}, Missing::lifelike, Needs::masks).value();
  EXPECT_EQ(inputs.values.tensors.size(), 2U);
  EXPECT_TRUE(inputs.values.tensors.contains("doc") && inputs.values.tensors.contains("seen"));
  EXPECT_EQ(inputs.values.params.at("n"), 2);
  EXPECT_FALSE(inputs.values.params.contains("c")) << "of the score";
  const auto all = make_inputs(spec.attention, {}, Missing::lifelike, Needs::masks_and_scores);
  EXPECT_TRUE(all->values.tensors.contains("slope"));
}

TEST(Inputs, ValuesThatPicturesDoNotReadAreRefused) {
  const Spec spec = spec_of(kSpec);
  for (const char* name : {"slope", "c"}) {
    const InputTexts given = {{name, "1"}};
    const auto mask = make_inputs(spec.attention, given, Missing::lifelike, Needs::masks);
    ASSERT_FALSE(mask.ok());
    EXPECT_EQ(mask.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(mask.error().message, HasSubstr(name));
    EXPECT_TRUE(
        make_inputs(spec.attention, given, Missing::lifelike, Needs::masks_and_scores).ok());
  }
}

TEST(Inputs, RandomIntegersAreLifelike) {
  const Spec spec = spec_of(kSpec);
  const auto doc = [&](const char* text) {
    return make_inputs(spec.attention, {{"doc", text}}, Missing::lifelike, Needs::masks)
        ->values.tensors.at("doc")
        .values;
  };
  EXPECT_EQ(doc("random"), make_inputs(spec.attention, {}, Missing::lifelike, Needs::masks)
                               ->values.tensors.at("doc")
                               .values);
  EXPECT_TRUE(std::ranges::is_sorted(doc("random:7")));
}

TEST(Inputs, IntegersThatAreNotGivenAreRefused) {
  const Spec spec = spec_of(kSpec);
  for (const char* name : {"doc", "seen", "n"}) {
    InputTexts texts = kIntegers;
    texts.erase(name);
    const auto inputs = make_inputs(spec.attention, texts, Missing::refuse);
    ASSERT_FALSE(inputs.ok());
    EXPECT_EQ(inputs.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(inputs.error().message, HasSubstr(name));
  }
}

TEST(Inputs, PatternsAreSortedBlocks) {
  const Spec spec = spec_of(kSpec);
  const Inputs inputs = make_inputs(spec.attention, {}, Missing::pattern).value();
  EXPECT_THAT(inputs.values.tensors.at("doc").values, ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_THAT(inputs.values.tensors.at("seen").values, ElementsAre(0, 0, 1, 1, 0, 0, 1, 1));
  EXPECT_EQ(inputs.values.params.at("c"), 0.75);
  EXPECT_EQ(inputs.values.params.at("n"), 4);
  EXPECT_THAT(inputs.origins,
              ::testing::Contains(std::make_pair(std::string("doc"), std::string(kPattern))));
}

TEST(Inputs, Words) {
  const Spec spec = spec_of(kSpec);
  InputTexts texts = kIntegers;
  texts["q"] = "const:-2.5";
  texts["k"] = "3";
  texts["c"] = "0.5";
  const Inputs inputs = make_inputs(spec.attention, texts, Missing::refuse).value();
  EXPECT_THAT(inputs.values.tensors.at("q").values, Each(-2.5));
  EXPECT_THAT(inputs.values.tensors.at("k").values, Each(3));
  EXPECT_EQ(inputs.values.params.at("c"), 0.5);
}

TEST(Inputs, AdviceOnUnknownNamesIsOfWhatTheCommandHas) {
  const Spec spec = spec_of(kSpec);
  const auto notes = [&](const char* name, Needs needs) {
    return make_inputs(spec.attention, {{name, "zeros"}}, Missing::lifelike, needs).error().notes;
  };
  const char* bind = "dimensions and parameters of the spec are set with --bind";
  EXPECT_THAT(notes("do", Needs::forward), ElementsAre("--grad runs one"));
  EXPECT_THAT(notes("do", Needs::masks), IsEmpty());
  EXPECT_THAT(notes("Sq", Needs::forward), ElementsAre("--bind Sq=.. sets its size"));
  EXPECT_THAT(notes("D", Needs::masks), ElementsAre("--bind D=.. sets its size"));
  EXPECT_THAT(notes("slop", Needs::forward),
              ElementsAre(HasSubstr("it has q"), "did you mean `slope`?", bind));
  EXPECT_THAT(notes("window", Needs::forward), ElementsAre(HasSubstr("it has q"), bind));
}

// They have one address: bits are compared, since NaN is not equal to itself, but 0 to -0.
TEST(Inputs, ElementsOfAFileWithOneAddressHaveTheSameBits) {
  const Spec spec = spec_of(R"(attention t {
    dims B = 1, Hq = 2, Hkv = 2, Sq = 8, Skv = 8, D = 8;
    layout v: strides(64, 0, 8, 1);
    outputs o;
  })");
  const std::string path = ::testing::TempDir() + "/attn_inputs_of_one_address.npy";
  const auto given = [&](double first, double second) {
    io::HostTensor v{DType::f32, {1, 2, 8, 8}, std::vector<double>(128)};
    v.values[3] = first, v.values[64 + 3] = second;
    EXPECT_TRUE(io::write_npy(path, v).ok());
    return make_inputs(spec.attention, {{"v", "@" + path}}, Missing::refuse);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(given(nan, nan).ok());
  EXPECT_TRUE(given(-0.0, -0.0).ok());
  EXPECT_THAT(given(0.0, -0.0).error().message,
              HasSubstr("element 67 is -0, but with the strides"));
  EXPECT_FALSE(given(nan, 0).ok());
  EXPECT_FALSE(given(1, 2).ok());
}

TEST(Inputs, WhatHasNoMeaningIsRefused) {
  const Spec spec = spec_of(kSpec);
  const std::pair<const char*, const char*> cases[] = {
      {"q", ""},     {"q", "random:"},     {"q", "random:x"}, {"q", "random:-1"},  {"q", "const:"},
      {"q", "1.5x"}, {"q", "zero"},        {"doc", "random"}, {"doc", "const:.5"}, {"seen", "2"},
      {"n", "1e10"}, {"nothing", "zeros"}, {"q", "@"},
  };
  for (const auto& [name, text] : cases) {
    InputTexts texts = kIntegers;
    texts[name] = text;
    EXPECT_FALSE(make_inputs(spec.attention, texts, Missing::refuse).ok()) << name << "=" << text;
  }
}

}  // namespace
}  // namespace attn::tools
