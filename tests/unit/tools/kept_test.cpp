#include "tools/kept.h"

#include <gtest/gtest.h>

#include "tests/unit/tools/spec_text.h"
#include "tools/inputs.h"

namespace attn::tools {
namespace {

// The reference gives the same results with the tensor `kept` as with the random numbers it was
// made from, where the weights of v's single rows are not 0. (The probability needs no rounding.)
TEST(Kept, TheTensorStandsForTheRandomNumbers) {
  const Spec spec = spec_of(
      "attention t { dims B = 2, Hq = 4, Hkv = 2, Sq = 5, Skv = 8, D = 8; dtype f16;"
      " mask q_idx + 3 >= kv_idx; dropout 0.375; outputs o, lse; }");
  const ir::Attention& attention = spec.attention;
  const auto inputs = make_inputs(attention, {{"seed", "7"}}, Missing::refuse);
  ASSERT_TRUE(inputs.ok());
  reference::Inputs shown = inputs->values;
  for (std::size_t i = 0; i < 2 * 2 * 8 * 8; ++i) {
    shown.tensors["v"].values[i] = i / 8 % 8 == i % 8 ? 1 : 0;
  }
  const auto weights = reference::evaluate(attention, shown, {});
  ASSERT_TRUE(weights.ok());
  io::HostTensor kept{DType::boolean, {2, 4, 5, 8}, {}};
  for (const double weight : weights->o.values) kept.values.push_back(weight != 0 ? 1 : 0);

  const ir::Attention known = with_kept(attention);
  ASSERT_TRUE(ir::verify(known).ok()) << ir::verify(known).error().message;
  const auto expected = reference::evaluate(attention, inputs->values, {});
  const auto actual = reference::evaluate(known, with_kept(inputs->values, kept), {});
  ASSERT_TRUE(actual.ok()) << actual.error().message;
  EXPECT_EQ(actual->o.values, expected->o.values);
  EXPECT_EQ(actual->lse.values, expected->lse.values);
}

TEST(Kept, OnlyTheNumbersOfCudnnAreUnknown) {
  const Spec spec =
      spec_of("attention t { dims B = 2, Hq = 4, Hkv = 2, Sq = 5, Skv = 8, D = 8; dropout 0.4; }");
  plan::Plan plan;
  plan.program.steps = {plan::KernelStep{}};
  EXPECT_FALSE(has_unknown_numbers(plan, spec.attention));
  plan.program.steps = {plan::CudnnStep{}};
  EXPECT_TRUE(has_unknown_numbers(plan, spec.attention));
  EXPECT_FALSE(has_unknown_numbers(plan, with_kept(spec.attention)));
}

}  // namespace
}  // namespace attn::tools
