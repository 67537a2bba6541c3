// Tests programs of every kind on the stand-ins: each step finds its operands.
#include <array>

#include "runtime/execute/addresses.h"
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
      const double value = param.dtype == DType::i32 ? 7 : 1.25;
      second.set_param(param.name, value);
      ASSERT_TRUE(binding.set_param(param.name, value).ok());
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
TEST_F(Programs, ASchedule) { expect_right_results(plan::testing::scheduled_program()); }

// There is none where the runtime would look for it.
TEST_F(Programs, KernelsAloneNeedNoCudnn) {
  RuntimeOptions options;
  options.cudnn_folder = "/no/such/folder";
  runtime_ = must(Runtime::open(options));
  expect_right_results(plan::testing::kernel_program());
  EXPECT_OK(Executable::check_fits(*runtime_, standin::plan_of(plan::testing::kernel_program())));
  EXPECT_FALSE(runtime_->has_loaded_cudnn());
  const auto refused =
      Executable::load(runtime_, standin::plan_of(plan::testing::sample_program()));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::cudnn);
}

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

// The limit belongs to the kernel: the largest of all its launches.
TEST_F(Programs, LaunchesOfOneKernelShareItsMemoryLimit) {
  plan::Program program = plan::testing::kernel_program();
  auto& step = std::get<plan::KernelStep>(program.steps[0]);
  plan::Launch again = step.launches[0];
  again.shared_bytes = 1024;
  step.launches.insert(step.launches.begin() + 1, again);
  expect_right_results(program);
}

TEST_F(Programs, LaunchArgumentsStayWhereTheyAreWhenMoved) {
  const plan::Program program = plan::testing::kernel_program();
  const plan::Plan plan = standin::plan_of(program);
  const Executable executable = must(Executable::load(runtime_, plan));
  const Case on = must(Case::make(executable.device(), plan));
  Scalars scalars(program, on.arguments());
  Memory memory(program, scalars);
  memory.add_internals(plan::internal_places(program, false), std::int64_t{256});
  const std::vector<void*> tensors = on.addresses();
  alignas(256) std::array<std::byte, 4096> workspace{};
  const auto& step = std::get<plan::KernelStep>(program.steps[0]);
  KernelArguments made = must(KernelArguments::make(
      KernelOperands(step, memory), {tensors, workspace.data()}, executable.device()));
  const LaunchArguments first = std::move(made.launches[0]), second = std::move(made.launches[1]);
  EXPECT_EQ(*static_cast<void**>(first.data()[0]), tensors[0]);  // of the map
  EXPECT_EQ(*static_cast<void**>(first.data()[1]), workspace.data() + 256);
  EXPECT_EQ(*static_cast<std::int32_t*>(first.data()[3]), 3);
  EXPECT_EQ(second.data()[3], scalars.param("cap"));
}

TEST_F(Programs, ALoop) { expect_right_results(plan::testing::looping_program()); }

TEST_F(Programs, AtRandom) {
  plan::testing::Random random(1);
  int executed = 0;
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    const plan::Program program = plan::testing::random_program(random);
    // A few have masks that cuDNN is known to take for others.
    if (!Executable::check_fits(*runtime_, standin::plan_of(program)).ok()) continue;
    expect_right_results(program);
    ++executed;
  }
  EXPECT_GE(executed, 190);
}

}  // namespace
}  // namespace attn::execute
