#include "compiler/ir/key_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attn::ir::key_sums_tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Two learned tensors are summed, and a score reads one of them, too.
constexpr std::string_view kSums = R"(attention f {
  dims B=2 Hq=4 Hkv=2 Sq=8 Skv=16 Dqk=8 Dv=8
  dtype bf16
  layout k=bshd o=bshd q=bshd v=bshd
  align top_left
  learn alone: f32[%0]
  learn both: f32[%0]
  tensor given: f32[%0]
  sum c: f32[%0] learned = %5
  sum d: f32[%0] = %6
  %0: int = const_int 16
  %1: int = column
  %2: real = load alone, %1
  %3: real = load both, %1
  %4: real = add %2, %3
  %5: real = tanh %4
  %6: real = load given, %1
  %7: real = load c, %1
  %8: real = load d, %1
  %9: real = add %7, %8
  %10: real = add %9, %3
  %11: real = score
  %12: real = add %10, %11
  %13: real = const_real 0.5
  scale %13
  score %12
  outputs o
}
)";

Attention with_gradients(std::vector<std::string> gradients) {
  Attention attention = parse(kSums).value();
  attention.gradients = std::move(gradients);
  EXPECT_TRUE(verify(attention).ok()) << verify(attention).error().message;
  return attention;
}

Attention given(const Attention& attention) {
  Attention given = with_sums_given(attention);
  EXPECT_TRUE(verify(given).ok()) << verify(given).error().message;
  EXPECT_THAT(given.sums, IsEmpty());
  return given;
}

TEST(KeySums, AreCapturedAndHaveTheGradientsOfWhatTheySum) {
  const Attention attention = with_gradients({"q", "alone", "both"});
  EXPECT_THAT(summed_with_gradients(attention), ElementsAre("alone", "both"));
  EXPECT_FALSE(is_read_besides_sums(attention, "alone"));
  EXPECT_TRUE(is_read_besides_sums(attention, "both"));
  const Attention captured = given(attention);
  EXPECT_THAT(captured.gradients, ElementsAre("q", "both", "c"));
  EXPECT_TRUE(captured.find_tensor("c")->learned && captured.find_tensor("c")->computed);
  EXPECT_FALSE(captured.find_tensor("d")->learned);
  EXPECT_FALSE(captured.find_tensor("alone")->learned);
}

TEST(KeySums, WithoutAClauseAllHaveGradients) {
  const Attention captured = given(with_gradients({}));
  EXPECT_THAT(captured.gradients, IsEmpty());
  EXPECT_TRUE(captured.find_tensor("c")->learned && captured.find_tensor("both")->learned);
  EXPECT_FALSE(captured.find_tensor("alone")->learned);
}

TEST(KeySums, OfWhatHasNoGradientHaveNone) {
  const Attention captured = given(with_gradients({"q", "v"}));
  EXPECT_THAT(captured.gradients, ElementsAre("q", "v"));
  EXPECT_FALSE(captured.find_tensor("c")->learned);
}

}  // namespace
}  // namespace attn::ir::key_sums_tests
