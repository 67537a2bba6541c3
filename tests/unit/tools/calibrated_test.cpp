#include "tools/calibrated.h"

#include <gtest/gtest.h>

#include "tests/unit/tools/spec_text.h"
#include "tools/execution.h"

namespace attn::tools {
namespace {

Spec spec_with(const std::string& quantize) {
  return spec_of(
      "attention t { dims B = 1, Hq = 2, Sq = 40, D = 16; dtype e4m3; quantize per_tensor" +
      quantize + "; outputs o, lse, amax_s, amax_o; grad q, k, v; }");
}

Inputs calibrated(const Spec& spec, const InputTexts& texts = {}) {
  auto inputs = make_inputs(spec.attention, texts, Missing::pattern, Needs::gradients);
  EXPECT_TRUE(inputs.ok());
  std::set<std::string> given = written_scales(*spec.source);
  for (const auto& [name, text] : texts) given.insert(name);
  EXPECT_TRUE(calibrate(spec.attention, given, Needs::gradients, *inputs).ok());
  return std::move(*inputs);
}

double value(const Inputs& inputs, const std::string& name) {
  return inputs.values.tensors.at(name).values.at(0);
}

TEST(Calibrate, TheLargestMagnitudeIsInTheUpperHalfOfTheType) {
  const Spec spec = spec_with(", gradients: e5m2");
  const Inputs inputs = calibrated(spec);
  const auto found = run_reference_gradients(spec.attention, inputs.values, true, {});
  ASSERT_TRUE(found.ok());
  for (const auto& [what, most] :
       {std::pair("o", 448.0), {"dp", 448.0}, {"dq", 57344.0}, {"dk", 57344.0}, {"dv", 57344.0}}) {
    const std::string name = what;
    const double stored =
        value(inputs, "scale_" + name) * found->outputs.at("amax_" + name).values.at(0);
    EXPECT_LT(stored, 1.05 * most) << name;
    EXPECT_GT(stored, 0.47 * most) << name;
  }
  EXPECT_EQ(value(inputs, "scale_s"), 256);
  for (const std::string name : {"scale_s", "scale_o", "scale_dp"}) {
    EXPECT_EQ(value(inputs, "de" + name) * value(inputs, name), 1) << name;
  }
  EXPECT_EQ(value(inputs, "descale_q"), 1);
}

TEST(Calibrate, WhatIsGivenStays) {
  const Spec spec = spec_with(", scale_s = 1, scale_dk = 1");
  const Inputs inputs = calibrated(spec, {{"scale_o", "1"}, {"descale_dp", "0.5"}});
  EXPECT_EQ(value(inputs, "scale_s"), 1);
  EXPECT_EQ(value(inputs, "descale_s"), 1);
  EXPECT_EQ(value(inputs, "scale_dk"), 1);
  EXPECT_EQ(value(inputs, "scale_o"), 1);
  EXPECT_EQ(value(inputs, "descale_o"), 1);
  EXPECT_EQ(value(inputs, "scale_dp"), 1);
  EXPECT_NE(value(inputs, "scale_dq"), 1);
}

}  // namespace
}  // namespace attn::tools
