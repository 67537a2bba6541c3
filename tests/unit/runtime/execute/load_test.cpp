#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/execute/executable.h"
#include "tests/gpu/plain_attention.h"

namespace attn::execute {
namespace {

TEST(Load, APlanThatContradictsItselfIsRefusedBeforeCudaIsAsked) {
  plan::Plan plan;
  plan.program = testing::attention_program({}, testing::Mask::causal);
  const auto without_kernels = Executable::load(plan);
  ASSERT_FALSE(without_kernels.ok());
  EXPECT_EQ(without_kernels.error().code, ErrorCode::plan_damaged);
  EXPECT_EQ(without_kernels.error().message, "the plan has 1 steps but kernels for 0");

  plan.compiled.resize(1);
  plan.program.params.clear();
  const auto dangling = Executable::load(plan);
  ASSERT_FALSE(dangling.ok());
  EXPECT_EQ(dangling.error().code, ErrorCode::plan_damaged);
}

TEST(Load, AMissingFileIsAnInputOutputError) {
  EXPECT_EQ(Executable::load_file("/no/such/file.attnplan").error().code, ErrorCode::io);
}

TEST(Load, WithoutADriverTheErrorSaysSo) {
  if (cuda::device_count().ok()) GTEST_SKIP() << "SKIPPED: this machine has a CUDA driver";
  plan::Plan plan;
  plan.program = testing::attention_program({}, testing::Mask::none);
  plan.compiled.resize(1);
  const auto executable = Executable::load(plan);
  ASSERT_FALSE(executable.ok());
  EXPECT_EQ(executable.error().code, ErrorCode::cuda);
  EXPECT_EQ(executable.error().message, cuda::device_count().error().message);
}

}  // namespace
}  // namespace attn::execute
