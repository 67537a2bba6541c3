// Tests loading on the stand-ins: errors, several devices, caches, handles and logs.
#include <cudnn_graph.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/cuda/driver.h"
#include "runtime/execute/addresses.h"
#include "runtime/execute/executable_cache.h"
#include "runtime/plan/bundle.h"
#include "tests/unit/runtime/execute/on_standins.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::execute {
namespace {

using standin::Case;
using standin::fail_nth;
using standin::make_plan;
using ::testing::Contains;
using ::testing::HasSubstr;

class LoadTest : public OnStandins {
 protected:
  // The error of loading if cuDNN fails to finalize a plan with this status.
  static Error error_for(int status, const char* words) {
    const auto runtime = must(standin::open_runtime());
    script_cudnn(
        {"cudnnBackendFinalize", CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 1, status, words, 0, 0});
    const auto executable = Executable::load(runtime, make_plan());
    return executable.ok() ? Error{} : executable.error();
  }
};

TEST_F(LoadTest, StatusesOfCudnnBecomeCodes) {
  const struct {
    int status;
    ErrorCode code;
    const char* name;
  } expected[] = {{CUDNN_STATUS_NOT_SUPPORTED, ErrorCode::unsupported, "NOT_SUPPORTED"},
                  {CUDNN_STATUS_NOT_SUPPORTED_SHAPE, ErrorCode::unsupported, "NOT_SUPPORTED_SHAPE"},
                  {CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, ErrorCode::cudnn,
                   "NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING"},
                  {CUDNN_STATUS_BAD_PARAM, ErrorCode::cudnn, "BAD_PARAM"},
                  {CUDNN_STATUS_INTERNAL_ERROR, ErrorCode::cudnn, "INTERNAL_ERROR"},
                  {CUDNN_STATUS_EXECUTION_FAILED, ErrorCode::cudnn, "EXECUTION_FAILED"}};
  for (const auto& [status, code, name] : expected) {
    const Error error = error_for(status, "");
    EXPECT_EQ(error.code, code) << name;
    EXPECT_EQ(error.message, std::string("cuDNN: finalize EXECUTION_PLAN: ") + name);
    EXPECT_TRUE(error.notes.empty()) << "cuDNN said nothing";
  }
  const Error told = error_for(CUDNN_STATUS_NOT_SUPPORTED,
                               "Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: head dim 100\n");
  EXPECT_EQ(told.message, "cuDNN: finalize EXECUTION_PLAN: NOT_SUPPORTED_SHAPE");
  EXPECT_THAT(told.notes, Contains("head dim 100"));
}

TEST_F(LoadTest, PlansForOthersAreRefusedBeforeCudnnSeesThem) {
  const auto runtime = must(standin::open_runtime());
  EXPECT_EQ(Executable::load(runtime, make_plan({.version = 92000})).error().code,
            ErrorCode::plan_version);
  EXPECT_EQ(Executable::load(runtime, make_plan({.sm = 100})).error().code, ErrorCode::plan_device);
  EXPECT_EQ(standin::cudnn().control.calls(nullptr, STANDIN_ANY), 0);
}

TEST_F(LoadTest, AFileForSeveralGpusGivesThePlanOfTheDevice) {
  const plan::Plan here = make_plan(), other = make_plan({.sm = 100});
  const std::string path = ::testing::TempDir() + "several.attnplan";
  ASSERT_TRUE(plan::save(plan::Bundle{{other, here}}, path).ok());
  EXPECT_EQ(must(Executable::load_file(path)).signature(), here.signature);
  ASSERT_TRUE(plan::save(plan::Bundle{{other, make_plan({.sm = 80})}}, path).ok());
  const auto none = Executable::load_file(path);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::plan_device);
  EXPECT_THAT(none.error().message, HasSubstr("several.attnplan: the plan file has no plan for"));
  std::filesystem::remove(path);
}

// As attnc compares rows now.
void compare_rows_inclusively(plan::Plan& plan) {
  using Mode = graph::PointwiseMode;
  for (plan::Step& step : plan.program.steps) {
    auto* cudnn = std::get_if<plan::CudnnStep>(&step);
    if (cudnn == nullptr) continue;
    for (graph::Node& node : cudnn->graph.nodes) {
      auto* comparison = std::get_if<graph::Pointwise>(&node);
      if (comparison != nullptr && comparison->mode == Mode::cmp_lt)
        comparison->mode = Mode::cmp_le;
    }
  }
}

TEST_F(LoadTest, PlansOfMasksThatCudnnTakesForPaddingAreRefused) {
  const auto runtime = must(standin::open_runtime());
  plan::Plan plan = standin::plan_of(plan::testing::like_padding_program());
  const auto loaded = Executable::load(runtime, plan);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::plan_version);
  EXPECT_THAT(loaded.error().message, HasSubstr("for those of padding"));
  EXPECT_THAT(loaded.error().notes, Contains(HasSubstr("--recompile")));
  compare_rows_inclusively(plan);
  EXPECT_OK(Executable::check_fits(*runtime, plan));
}

TEST_F(LoadTest, ADamagedKernelIsAnError) {
  const auto runtime = must(standin::open_runtime());
  plan::Plan plan = make_plan({.derives_each = true});
  plan.compiled[0].cudnn_plan.resize(plan.compiled[0].cudnn_plan.size() / 2);
  EXPECT_EQ(Executable::load(runtime, plan).error().code, ErrorCode::cudnn);
  plan = make_plan({.derives_each = true});
  plan.kernels[0] = "no image";
  EXPECT_EQ(Executable::load(runtime, plan).error().code, ErrorCode::cuda);
}

// A launch reads as many arguments as the kernel has parameters, whatever the manifest lists.
TEST_F(LoadTest, KernelsWithOtherParametersThanAreListedAreRefused) {
  const auto runtime = must(standin::open_runtime());
  const auto load = [&](const std::function<void(plan::Program&)>& change) {
    plan::Plan plan =
        make_plan({.params = 2, .derives_once = true, .derives_each = true, .checks = true});
    change(plan.program);
    const auto executable = Executable::load(runtime, plan);
    return executable.ok() ? Error{ErrorCode::internal, "loaded"} : executable.error();
  };
  const auto inputs = [](plan::Program & program, std::size_t step) -> auto& {
    return std::get<plan::DeriveStep>(program.steps[step]).inputs;
  };
  EXPECT_EQ(load([](auto&) {}).message, "loaded");
  const Error fewer = load([&](auto& p) { inputs(p, 1).pop_back(); });
  EXPECT_EQ(fewer.code, ErrorCode::plan_damaged);
  EXPECT_EQ(fewer.message, "the plan's kernel attn_derive has 4 parameters, but the plan lists 3");
  EXPECT_EQ(load([&](auto& p) { std::swap(inputs(p, 1)[0], inputs(p, 1)[1]); }).message,
            "the plan's kernel attn_derive has 8 bytes in parameter 1, but the plan lists 4");
  EXPECT_EQ(load([&](auto& p) { inputs(p, 1).push_back(inputs(p, 1)[0]); }).code,
            ErrorCode::plan_damaged);
  EXPECT_THAT(load([](auto& p) { p.check->inputs.pop_back(); }).message,
              HasSubstr("attn_check_quickly has 4 parameters"));
  // A step that runs at load would be launched here.
  const std::int64_t launched = cuda_calls("cuLaunchKernelEx");
  const Error once = load([](auto& p) {
    auto& step = std::get<plan::DeriveStep>(p.steps[0]);
    p.internals.push_back(p.internals[0]);
    p.internals.back().name = "more";
    step.outputs.push_back("more");
    step.expressions.push_back("more");
  });
  EXPECT_THAT(once.message, HasSubstr("has 1 parameters, but the plan lists 2"));
  EXPECT_EQ(cuda_calls("cuLaunchKernelEx"), launched);
}

TEST_F(LoadTest, KernelsOfAStepHaveTheListedParameters) {
  const auto runtime = must(standin::open_runtime());
  plan::Plan plan = standin::plan_of(plan::testing::kernel_program());
  auto& step = std::get<plan::KernelStep>(plan.program.steps[0]);
  const plan::KernelArgument map = step.launches[0].arguments[0];
  step.launches[0].arguments[0] = plan::TensorOperand{"q"};
  EXPECT_EQ(Executable::load(runtime, plan).error().message,
            "the plan's kernel first has 128 bytes in parameter 0, but the plan lists 8");
  step.launches[0].arguments[0] = map;
  EXPECT_OK(Executable::load(runtime, plan).status());
  step.launches[1].kernel = "third";
  EXPECT_THAT(Executable::load(runtime, plan).error().message,
              HasSubstr("finding the kernel third"));
}

// Simulates a driver that cannot report parameters.
TEST_F(LoadTest, WithoutTheDriversWordOnParametersNoKernelIsLoaded) {
  const auto runtime = must(standin::open_runtime());
  script_cuda(fail_nth("cuFuncGetParamInfo", 1, CUDA_ERROR_NOT_SUPPORTED));
  EXPECT_EQ(Executable::load(runtime, make_plan({.derives_each = true})).error().code,
            ErrorCode::cuda);
  EXPECT_TRUE(Executable::load(runtime, make_plan()).ok()) << "without kernels of ours";
}

// An iota is uploaded in pieces, so that the host holds only a few elements at a time.
TEST_F(LoadTest, CountingNumbersAreAllMade) {
  const auto runtime = must(standin::open_runtime());
  constexpr std::int64_t kCount = (std::int64_t{1} << 20) + 5;
  plan::Program program;
  plan::CudnnStep step;
  step.operands.push_back({1, plan::IotaOperand{kCount}});
  program.steps.emplace_back(step);
  const auto buffer = must(make_iota(program, runtime->device()));
  std::vector<std::int32_t> numbers(kCount);
  EXPECT_OK(buffer.download(std::as_writable_bytes(std::span(numbers))));
  for (std::int32_t i = 0; i < kCount; ++i) ASSERT_EQ(numbers[static_cast<std::size_t>(i)], i);
}

CUcontext current_context() {
  CUcontext context = nullptr;
  must(cuda::driver())->context_get_current(&context);
  return context;
}

// A plan belongs to the device it was loaded on; one thread may use several devices.
TEST_F(LoadTest, DevicesKnowNothingOfEachOther) {
  const plan::Plan plan = make_plan({.steps = 2, .derives_once = true, .derives_each = true});
  const cuda::Device third = must(cuda::Device::open(0));
  ASSERT_TRUE(third.make_current().ok());
  const CUcontext before = current_context();
  std::vector<Executable> executables;
  std::vector<Case> cases;
  std::vector<Binding> bindings;
  for (int device = 0; device < 2; ++device) {
    executables.push_back(must(Executable::load(must(standin::open_runtime(device)), plan)));
    EXPECT_EQ(executables.back().device().ordinal(), device);
    cases.push_back(must(Case::make(executables.back().device(), plan, device)));
    bindings.push_back(must(executables.back().bind(cases.back().arguments())));
  }
  EXPECT_EQ(standin::cudnn().control.calls("cudnnBackendFinalize",
                                           CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
            4);
  EXPECT_EQ(executables[0].bind(cases[1].arguments()).error().code, ErrorCode::binding);
  EXPECT_EQ(bindings[1].set_addresses(cases[0].addresses()).error().code, ErrorCode::binding);
  for (const std::size_t device : {0U, 1U, 1U, 0U}) expect_right(cases[device], bindings[device]);
  EXPECT_EQ(current_context(), before);
}

TEST_F(LoadTest, DevicesOfTwoArchitectures) {
  const int sms[] = {90, 100};
  standin::cuda().set_devices(2, sms);
  const plan::Plan plan = make_plan({.sm = 100});
  EXPECT_EQ(Executable::load(must(standin::open_runtime(0)), plan).error().code,
            ErrorCode::plan_device);
  const Executable executable = must(Executable::load(must(standin::open_runtime(1)), plan));
  Case on = must(Case::make(executable.device(), plan));
  Binding binding = must(executable.bind(on.arguments()));
  expect_right(on, binding);
  EXPECT_EQ(standin::open_runtime(2).error().code, ErrorCode::invalid_argument);
}

TEST_F(LoadTest, HandlesAreMadeAsBindingsAre) {
  const plan::Plan plan = make_plan();
  const auto runtime = must(standin::open_runtime(0, 2));
  EXPECT_EQ(standin::live().handles, 0);
  const Executable executable = must(Executable::load(runtime, plan));
  Case on = must(Case::make(executable.device(), plan));
  EXPECT_EQ(standin::live().handles, 2);  // one for loads, one for the first binding
  std::vector<Binding> bindings;
  for (const std::int64_t handles : {2, 3, 3, 3}) {
    bindings.push_back(must(executable.bind(on.arguments())));
    EXPECT_EQ(standin::live().handles, handles);
  }
  for (Binding& binding : bindings) expect_right(on, binding);
  bindings.clear();
  bindings.push_back(must(executable.bind(on.arguments())));
  EXPECT_EQ(cudnn_calls("cudnnCreate"), 3);
}

TEST_F(LoadTest, ACacheForgetsWithAllThatWasMade) {
  cache::MemoryOptions limits;
  limits.values.entries = 2;
  const auto runtime = must(standin::open_runtime());
  ExecutableCache cache(runtime, limits);
  const auto plan = [](int number) { return make_plan({.number = number, .derives_once = true}); };
  std::optional<Executable> pinned = must(cache.get(plan(0)));
  const standin::Live one = standin::live();
  for (int number = 1; number < 6; ++number) ASSERT_TRUE(cache.get(plan(number)).ok());
  EXPECT_EQ(cache.size(), 2U);
  EXPECT_EQ(cache.counts()[cache::Counter::evict], 4U);
  EXPECT_EQ(standin::live().descriptors, 2 * one.descriptors);
  EXPECT_EQ(standin::live().bytes, 2 * one.bytes);
  must(cache.get(plan(0)));
  EXPECT_EQ(cache.counts()[cache::Counter::hit], 1U);
  cache.clear();
  EXPECT_EQ(standin::live().descriptors, one.descriptors);
  pinned.reset();
  EXPECT_EQ(standin::live().descriptors, 0);
}

// Signatures do not cover compiled code: a trusted file must not be answered with an executable of
// another file.
TEST_F(LoadTest, ACacheTellsPlansApartByTheirKernels) {
  ExecutableCache cache(must(standin::open_runtime()));
  const plan::Plan one = make_plan({.derives_once = true});
  plan::Plan other = one;
  const plan::Plan compiled = standin::plan_of(one.program, {.number = 1});
  ASSERT_EQ(compiled.signature, one.signature);
  must(cache.get(one));
  other.compiled = compiled.compiled;
  must(cache.get(other));
  other.kernels = compiled.kernels;
  must(cache.get(other));
  EXPECT_EQ(cache.counts()[cache::Counter::load], 3U);
  must(cache.get(one));
  must(cache.get(other));
  EXPECT_EQ(cache.counts()[cache::Counter::load], 3U);
}

TEST_F(LoadTest, ARefusalIsKeptAndAFailureIsTriedAgain) {
  ExecutableCache cache(must(standin::open_runtime()));
  script_cudnn(fail_nth("cudnnBackendFinalize", 1, CUDNN_STATUS_INTERNAL_ERROR));
  EXPECT_EQ(cache.get(make_plan()).error().code, ErrorCode::cudnn);
  EXPECT_TRUE(cache.get(make_plan()).ok());
  const plan::Plan refused = make_plan({.number = 1});
  script_cudnn(fail_nth("cudnnBackendFinalize", 1, CUDNN_STATUS_NOT_SUPPORTED));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cache.get(refused).error().code, ErrorCode::unsupported);
  }
  EXPECT_EQ(cache.counts()[cache::Counter::negative], 2U);
  EXPECT_EQ(cache.counts()[cache::Counter::load], 3U);
}

TEST_F(LoadTest, TheApplicationIsToldWhatHappens) {
  std::vector<std::string> told;
  RuntimeOptions options;
  options.cudnn_folder = standin::folder();
  options.log = [&told](log::Level, std::string_view message) { told.emplace_back(message); };
  const Executable executable = must(Executable::load(must(Runtime::open(options)), make_plan()));
  ASSERT_EQ(told.size(), 3U);
  EXPECT_EQ(told[0], "CUDA device 0: stand-in 0 (sm_90)");
  EXPECT_THAT(told[1], HasSubstr("cuDNN 9.19.0 of "));
  EXPECT_THAT(told[2], HasSubstr("loaded the forward plan of `standin0`"));
  EXPECT_THAT(told[2], HasSubstr("1 steps, 512 bytes of workspace"));
}

}  // namespace
}  // namespace attn::execute
