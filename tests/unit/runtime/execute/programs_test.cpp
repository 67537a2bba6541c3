// Tests programs of every kind on the stand-ins: each step finds its operands.
#include "tests/unit/runtime/execute/on_standins.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::execute {
namespace {

using standin::Case;

class Programs : public OnStandins {
 protected:
  void SetUp() override {
    OnStandins::SetUp();
    runtime_ = must(standin::open_runtime());
  }
  void TearDown() override {
    runtime_.reset();
    OnStandins::TearDown();
  }

  // Executes with two sets of tensors.
  void expect_right_results(const plan::Program& program) {
    const plan::Plan plan = standin::plan_of(program);
    const Executable executable = must(Executable::load(runtime_, plan));
    Case first = must(Case::make(executable.device(), plan, 1));
    Case second = must(Case::make(executable.device(), plan, 2));
    Binding binding = must(executable.bind(first.arguments()));
    expect_right(first, binding);
    ASSERT_TRUE(binding.set_addresses(second.addresses()).ok());
    for (const plan::ParamInfo& param : program.params) {
      second.set_param(param.name, 1.25);
      ASSERT_TRUE(binding.set_param(param.name, 1.25).ok());
    }
    expect_right(second, binding);
  }

  std::shared_ptr<Runtime> runtime_;
};

TEST_F(Programs, ASample) { expect_right_results(plan::testing::sample_program()); }
TEST_F(Programs, WhatIsDerived) { expect_right_results(plan::testing::derived_program()); }
TEST_F(Programs, WhatIsControlled) { expect_right_results(plan::testing::controlled_program()); }
TEST_F(Programs, ABackward) { expect_right_results(plan::testing::backward_program()); }

TEST_F(Programs, LaunchesOfKernels) { expect_right_results(plan::testing::kernel_program()); }

// Counters are zeroed by every execute; more shared memory than the default is asked for.
TEST_F(Programs, KernelStepsPrepareTheirLaunches) {
  const plan::Plan plan = standin::plan_of(plan::testing::kernel_program());
  const std::int64_t attributes = cuda_calls("cuFuncSetAttribute");
  const Executable executable = must(Executable::load(runtime_, plan));
  EXPECT_EQ(cuda_calls("cuFuncSetAttribute"), attributes + 1);
  const Case on = must(Case::make(executable.device(), plan));
  const std::int64_t maps = cuda_calls("cuTensorMapEncodeTiled");
  Binding binding = must(executable.bind(on.arguments()));
  EXPECT_EQ(cuda_calls("cuTensorMapEncodeTiled"), maps + 1);
  const std::int64_t zeroed = cuda_calls("cuMemsetD8Async");
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(binding.execute(nullptr).ok());
    EXPECT_EQ(cuda_calls("cuMemsetD8Async"), zeroed + i);
  }
  EXPECT_EQ(cuda_calls("cuTensorMapEncodeTiled"), maps + 1);
}

TEST_F(Programs, ALoop) { expect_right_results(plan::testing::looping_program()); }

TEST_F(Programs, AtRandom) {
  plan::testing::Random random(1);
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    expect_right_results(plan::testing::random_program(random));
  }
}

}  // namespace
}  // namespace attn::execute
