#include "compiler/engines/shared/key_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/codegen/key_sums.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::key_sums_tests {
namespace {

using plan::Direction;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ir::Attention of(const std::string& clauses) {
  return masks::testing::of_spec(
      "attention f { dims B = 2, Hq = 4, Hkv = 2, Sq = 200, Skv = 200, D = 64; " + clauses + " }");
}

constexpr const char* kFox =
    "learn forget: f32[B, Hq, Skv]; let c = cumsum(-softplus(-forget[b, h, kv_idx]));"
    "score score + c[q_idx] - c[kv_idx]; mask q_idx >= kv_idx; outputs o, lse;";

plan::Program lowered(const std::string& clauses, Direction direction,
                      const char* engine = "native") {
  auto program = driver::lower(of(clauses), engine, direction);
  EXPECT_TRUE(program.ok()) << program.error().to_text();
  return program.ok() ? *program : plan::Program{};
}

std::vector<std::string> bound(const plan::Program& program) {
  std::vector<std::string> names;
  for (const plan::TensorInfo& tensor : program.tensors) names.push_back(tensor.name);
  return names;
}

bool is_internal(const plan::Program& program, const std::string& name) {
  return std::ranges::find(program.internals, name, &plan::TensorInfo::name) !=
         program.internals.end();
}

const plan::KernelStep& kernels(const plan::Step& step) { return std::get<plan::KernelStep>(step); }

TEST(KeySums, AreComputedInOneLaunchBefore) {
  for (const char* engine : {"native", "cudnn", "unfused"}) {
    const plan::Program program = lowered(kFox, Direction::forward, engine);
    EXPECT_THAT(bound(program), ElementsAre("q", "k", "v", "forget", "o", "lse"));
    EXPECT_TRUE(is_internal(program, "c"));
    const plan::KernelStep& first = kernels(program.steps.front());
    ASSERT_EQ(first.launches.size(), 1U);
    EXPECT_EQ(first.launches[0].kernel, codegen::kKeySumsKernel);
    EXPECT_EQ(first.launches[0].grid[0], 8);
    EXPECT_THAT(first.outputs, ElementsAre("c"));
  }
}

TEST(KeySums, OfElementsThatAreReadOnceHaveGradientsInOneLaunchAfter) {
  for (const char* engine : {"native", "cudnn", "unfused"}) {
    const plan::Program program = lowered(kFox, Direction::backward, engine);
    EXPECT_THAT(bound(program), ElementsAre("q", "k", "v", "forget", "o", "lse", "do", "dq", "dk",
                                            "dv", "d_forget"));
    EXPECT_TRUE(is_internal(program, "c") && is_internal(program, "d_c"));
    const plan::KernelStep& last = kernels(program.steps.back());
    ASSERT_EQ(last.launches.size(), 1U);
    EXPECT_EQ(last.launches[0].kernel, codegen::kKeySumGradientsKernel);
    EXPECT_THAT(last.outputs, ElementsAre("d_forget"));
  }
}

TEST(KeySums, OfSharedElementsHaveGradientsThatAreSummed) {
  const plan::Program program = lowered(
      "learn gate: bf16[Hkv, Skv]; let c = cumsum(gate[h // 2, kv_idx]);"
      "score score + c[kv_idx] + gate[h // 2, kv_idx]; grad gate, q;",
      Direction::backward);
  EXPECT_THAT(bound(program), ElementsAre("q", "k", "v", "gate", "o", "lse", "do", "d_gate", "dq"));
  EXPECT_TRUE(is_internal(program, "d_gate.rest"));
  EXPECT_TRUE(is_internal(program, "c.onward"));
  EXPECT_THAT(std::get<plan::DeriveStep>(program.steps.back()).outputs, ElementsAre("d_gate"));
}

TEST(KeySums, WithoutALearnedTensorHaveNoGradient) {
  const plan::Program program =
      lowered("tensor gate: f32[Skv]; let c = cumsum(gate[kv_idx]); score score + c[kv_idx];",
              Direction::backward);
  EXPECT_FALSE(is_internal(program, "d_c"));
  EXPECT_EQ(kernels(program.steps.front()).launches[0].grid[0], 1);
}

// A schedule is made when lengths are known, which may be long before gates are.
TEST(KeySums, AreNoPartOfASchedule) {
  const plan::Program program = lowered(std::string("layout thd;") + kFox, Direction::forward);
  const plan::KernelStep* scheduled = plan::scheduled_step(program);
  ASSERT_NE(scheduled, nullptr);
  EXPECT_FALSE(plan::names(scheduled->launches.front(), "c"));
  EXPECT_TRUE(plan::names(*scheduled, "c"));
}

TEST(KeySums, AreRefusedWhereAnIndexMayBeOutOfRange) {
  const auto program = driver::lower(
      of("tensor at: i32[Skv]; tensor gate: f32[Skv]; let c = cumsum(gate[at[kv_idx]]);"
         "score score + c[kv_idx];"),
      "native", Direction::forward);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, ErrorCode::unsupported);
  EXPECT_THAT(program.error().to_text(), HasSubstr("what `c` sums along keys may have no value"));
  EXPECT_TRUE(driver::lower(of("tensor at: i32[Skv]; tensor gate: f32[Skv];"
                               "let c = cumsum(gate[clamp(at[kv_idx], 0, Skv - 1)]);"
                               "score score + c[kv_idx];"),
                            "native", Direction::forward)
                  .ok());
}

// Whether an index of a sum is in range is checked without its elements.
TEST(KeySums, HaveIndexesThatAreChecked) {
  const plan::Program program = lowered(
      "tensor at: i32[Sq]; tensor gate: f32[Skv]; let c = cumsum(gate[kv_idx]);"
      "score score - c[at[q_idx]] * c[kv_idx];",
      Direction::forward);
  ASSERT_TRUE(program.check.has_value());
  ASSERT_EQ(program.check->inputs.size(), 1U);
  EXPECT_EQ(program.check->source.find("t_c"), std::string::npos);
}

TEST(KeySums, AreRefusedWhereTheyDecideWhetherAnIndexCounts) {
  const auto program =
      driver::lower(of("tensor at: i32[Skv]; tensor gate: f32[Skv]; let c = cumsum(gate[kv_idx]);"
                       "score score + where(c[kv_idx] > 0, gate[at[kv_idx]], 0);"),
                    "native", Direction::forward);
  ASSERT_FALSE(program.ok());
  EXPECT_THAT(program.error().to_text(), HasSubstr("an index, a divisor or a shift in the score"));
}

}  // namespace
}  // namespace attn::engines::key_sums_tests
