// Tests lifetimes on the stand-ins: every test must end with no live object and no violated
// contract of cuDNN or the driver (StandinTest).
#include <cuda.h>
#include <cudnn_graph.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <thread>

#include "tests/unit/runtime/execute/on_standins.h"

namespace attn::execute {
namespace {

using standin::Case;
using standin::fail_nth;
using standin::make_plan;
using ::testing::HasSubstr;

// A plan with every feature.
plan::Plan whole_plan(int number = 0) {
  return make_plan({.number = number,
                    .steps = 2,
                    .params = 2,
                    .derives_once = true,
                    .derives_each = true,
                    .checks = true});
}

// The complete life cycle of a plan in an application, with both kinds of owned workspaces.
Status whole_life(const plan::Plan& plan) {
  ATTN_ASSIGN(auto runtime, standin::open_runtime());
  ATTN_ASSIGN(Executable executable, Executable::load(runtime, plan));
  ATTN_ASSIGN(Case first, Case::make(executable.device(), plan, 1));
  ATTN_ASSIGN(Case second, Case::make(executable.device(), plan, 2));
  ATTN_ASSIGN(const cuda::Stream stream, cuda::Stream::create(executable.device()));
  ATTN_ASSIGN(Binding pooled, executable.bind(first.arguments(), Workspace::stream_ordered()));
  ATTN_RETURN_IF_ERROR(pooled.execute(stream.handle()));
  ATTN_ASSIGN(Binding owned, executable.bind(first.arguments()));
  ATTN_RETURN_IF_ERROR(owned.execute(stream.handle()));
  ATTN_RETURN_IF_ERROR(owned.set_addresses(second.addresses()));
  ATTN_RETURN_IF_ERROR(owned.execute(stream.handle()));
  ATTN_ASSIGN(CudaGraph graph, CudaGraph::capture(std::move(owned)));
  ATTN_RETURN_IF_ERROR(graph.set_param("p0", 3));
  ATTN_RETURN_IF_ERROR(graph.launch(stream.handle()));
  return {};
}

// Number of calls of each function in a life cycle without failures, except functions that release.
// The first life cycle of a process makes some calls that later ones do not.
std::map<std::string, long> calls_of_a_life(const StandinControl& control, const plan::Plan& plan) {
  EXPECT_OK(whole_life(plan));
  control.record(1);
  EXPECT_OK(whole_life(plan));
  std::map<std::string, long> calls;
  std::istringstream log(standin::log_of(control));
  for (std::string line; std::getline(log, line);) {
    const std::string function = line.substr(0, line.find(' '));
    if (!std::regex_search(function, std::regex("Destroy|Free|Release|Unload"))) ++calls[function];
  }
  return calls;
}

class Lifetime : public OnStandins {};

TEST_F(Lifetime, EveryCallOfCudnnMayFail) {
  const plan::Plan plan = whole_plan();
  const StandinControl& control = standin::cudnn().control;
  for (const auto& [function, count] : calls_of_a_life(control, plan)) {
    for (long nth = 1; nth <= count; ++nth) {
      script_cudnn(fail_nth(function.c_str(), nth, CUDNN_STATUS_INTERNAL_ERROR, "so told"));
      const Status lived = whole_life(plan);
      SCOPED_TRACE(function + " " + std::to_string(nth));
      ASSERT_FALSE(lived.ok());
      EXPECT_EQ(lived.error().code, ErrorCode::cudnn) << lived.error().to_text();
      EXPECT_THAT(lived.error().to_text(), HasSubstr("so told"));
      ASSERT_EQ(standin::live(), standin::Live());
    }
  }
}

// Without cuCtxGetCurrent, which fails only if the driver and all its objects are gone, and the
// mode of captures, which matters only during one. A graph update that fails is replaced by a new
// graph.
TEST_F(Lifetime, EveryCallOfTheDriverMayFail) {
  const plan::Plan plan = whole_plan();
  for (const auto& [function, count] : calls_of_a_life(standin::cuda().control, plan)) {
    if (function == "cuCtxGetCurrent" || function == "cuThreadExchangeStreamCaptureMode") continue;
    for (long nth = 1; nth <= count; ++nth) {
      script_cuda(fail_nth(function.c_str(), nth, CUDA_ERROR_OUT_OF_MEMORY));
      const Status lived = whole_life(plan);
      SCOPED_TRACE(function + " " + std::to_string(nth));
      EXPECT_EQ(lived.ok(), function == "cuGraphExecUpdate");
      if (!lived.ok()) {
        EXPECT_EQ(lived.error().code, ErrorCode::cuda);
        EXPECT_THAT(lived.error().message, HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
      }
      ASSERT_EQ(standin::live(), standin::Live());
    }
  }
}

// In any order: the remaining objects keep what they need.
TEST_F(Lifetime, AnyOrderOfDestruction) {
  std::array<int, 4> order = {0, 1, 2, 3};
  const plan::Plan plan = whole_plan();
  do {
    std::array<std::function<void()>, 4> drop;
    auto runtime = must(standin::open_runtime());
    std::optional<Executable> executable = must(Executable::load(runtime, plan));
    std::optional<Case> on = must(Case::make(executable->device(), plan));
    std::optional<Binding> binding = must(executable->bind(on->arguments()));
    std::optional<CudaGraph> graph =
        must(CudaGraph::capture(must(executable->bind(on->arguments()))));
    drop = {[&] { runtime.reset(); }, [&] { executable.reset(); }, [&] { binding.reset(); },
            [&] { graph.reset(); }};
    for (const int next : order) {
      if (binding) expect_right(*on, *binding);
      if (graph) EXPECT_OK(graph->launch(nullptr));
      drop[static_cast<std::size_t>(next)]();
    }
    on.reset();
    ASSERT_EQ(standin::live(), standin::Live());
    ASSERT_EQ(standin::violations(), "");
  } while (std::ranges::next_permutation(order).found);
}

// Only threads created by the library have a context.
TEST_F(Lifetime, EveryThreadWillDo) {
  const plan::Plan plan = whole_plan();
  std::shared_ptr<Runtime> runtime;
  std::optional<Executable> executable;
  std::optional<Case> on;
  std::optional<Binding> binding;
  std::optional<CudaGraph> graph;
  const auto elsewhere = [](const std::function<void()>& what) { std::thread(what).join(); };
  elsewhere([&] { runtime = must(standin::open_runtime(1)); });
  elsewhere([&] { executable = must(Executable::load(runtime, plan)); });
  elsewhere([&] { on = must(Case::make(executable->device(), plan)); });
  elsewhere([&] { binding = must(executable->bind(on->arguments())); });
  elsewhere([&] { expect_right(*on, *binding); });
  elsewhere([&] { EXPECT_OK(binding->set_addresses(on->addresses())); });
  elsewhere([&] { graph = must(CudaGraph::capture(must(executable->bind(on->arguments())))); });
  elsewhere([&] { EXPECT_OK(graph->set_param("p0", 2)); });
  for (int i = 0; i < 2; ++i) elsewhere([&] { EXPECT_OK(graph->launch(nullptr)); });
  elsewhere([&] { graph.reset(); });
  elsewhere([&] { binding.reset(); });
  elsewhere([&] { on.reset(); });
  elsewhere([&] { runtime.reset(); });
  elsewhere([&] { executable.reset(); });
}

// Creates no cuDNN or driver object.
TEST_F(Lifetime, AThousandExecutesMakeNothing) {
  const plan::Plan plan = whole_plan();
  const auto runtime = must(standin::open_runtime());
  const Executable executable = must(Executable::load(runtime, plan));
  Case on = must(Case::make(executable.device(), plan));
  const cuda::Stream stream = must(cuda::Stream::create(executable.device()));
  Binding binding = must(executable.bind(on.arguments()));
  ASSERT_TRUE(executable.device().make_current().ok());
  expect_right(on, binding, stream.handle());
  standin::cudnn().control.reset();
  standin::cuda().control.reset();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(binding.execute(stream.handle()).ok());
  EXPECT_EQ(cudnn_calls("cudnnBackendExecute"), 2000);
  EXPECT_EQ(standin::cudnn().control.calls(nullptr, STANDIN_ANY), 2000);
  EXPECT_EQ(cuda_calls("cuLaunchKernelEx"), 1000);
  EXPECT_EQ(cuda_calls("cuCtxGetCurrent"), 1000);
  EXPECT_EQ(standin::cuda().control.calls(nullptr, STANDIN_ANY), 2000);
}

// An execute that blocks inside cuDNN holds no lock that destroying other objects needs, and keeps
// what it executes alive.
TEST_F(Lifetime, OthersAreDestroyedDuringAnExecute) {
  const auto runtime = must(standin::open_runtime());
  const plan::Plan plan = whole_plan(), other_plan = whole_plan(1);
  std::optional<Executable> executable = must(Executable::load(runtime, plan));
  std::optional<Executable> other = must(Executable::load(runtime, other_plan));
  Case on = must(Case::make(executable->device(), plan));
  Case other_on = must(Case::make(other->device(), other_plan));
  Binding binding = must(executable->bind(on.arguments()));
  std::optional<Binding> other_binding = must(other->bind(other_on.arguments()));
  script_cudnn(standin::block_nth("cudnnBackendExecute", 1));
  std::thread thread([&] { EXPECT_OK(binding.execute(nullptr)); });
  while (standin::cudnn().control.blocked() == 0) std::this_thread::yield();
  expect_right(other_on, *other_binding);
  other_binding.reset();
  other.reset();
  executable.reset();
  const Executable third = must(Executable::load(runtime, other_plan));
  EXPECT_EQ(standin::cudnn().control.blocked(), 1);
  standin::cudnn().control.release();
  thread.join();
  EXPECT_TRUE(must(on.is_right()));
}

}  // namespace
}  // namespace attn::execute
