// Tests executes as child graphs, bindings made during captures, failing captures, and faults
// reported after other failures.
#include <cuda.h>
#include <cudnn_graph.h>

#include <thread>

#include "runtime/cuda/driver.h"
#include "runtime/cuda/failure.h"
#include "runtime/cuda/stream.h"
#include "tests/unit/runtime/execute/on_standins.h"

namespace attn::execute {
namespace {

using standin::Case;
using standin::fail_nth;
using standin::make_plan;
using ::testing::HasSubstr;

class Captures : public WithCase {
 protected:
  void SetUp() override {
    OnStandins::SetUp();
    load(make_plan({.steps = 2, .derives_each = true}));
  }

  // Launches like a parent graph.
  void launch(void* graph) const {
    const cuda::Driver& driver = *must(cuda::driver());
    ASSERT_TRUE(runtime_->device().make_current().ok());
    CUgraphExec exec = nullptr;
    ASSERT_EQ(driver.graph_instantiate(&exec, static_cast<CUgraph>(graph), 0), CUDA_SUCCESS);
    EXPECT_EQ(driver.graph_launch(exec, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver.graph_exec_destroy(exec), CUDA_SUCCESS);
  }
};

TEST_F(Captures, AGraphForAChildNodeDoesWhatAnExecuteDoes) {
  for (const Workspace& workspace : {Workspace::owned(), Workspace::stream_ordered()}) {
    Binding binding = must(executable_->bind(on_->arguments(), workspace));
    EXPECT_OK(on_->poison());
    launch(must(binding.graph()));
    EXPECT_TRUE(must(on_->is_right()));

    Case other = must(Case::make(executable_->device(), plan_, 2));
    EXPECT_OK(binding.set_addresses(other.addresses()));
    other.set_param("p0", 4);
    EXPECT_OK(binding.set_param("p0", 4));
    launch(must(binding.graph()));
    EXPECT_TRUE(must(other.is_right()));
    expect_right(other, binding);
  }
  EXPECT_EQ(cuda_calls("cuMemAllocAsync"), 1) << "by the last execute alone";
}

TEST_F(Captures, ACaptureThatFailsLeavesTheBindingAsItWas) {
  for (const Workspace& workspace : {Workspace::owned(), Workspace::stream_ordered()}) {
    for (const char* function : {"cuStreamCreate", "cuStreamBeginCapture", "cuStreamEndCapture",
                                 "cuGraphInstantiateWithFlags", "cuLaunchKernelEx"}) {
      SCOPED_TRACE(function);
      Binding binding = must(executable_->bind(on_->arguments(), workspace));
      const std::int64_t bytes = standin::live().bytes;
      script_cuda(fail_nth(function, 1, CUDA_ERROR_OUT_OF_MEMORY));
      const auto failed = CudaGraph::capture(std::move(binding));
      ASSERT_FALSE(failed.ok());
      EXPECT_EQ(failed.error().code, ErrorCode::cuda);
      EXPECT_EQ(standin::live().bytes, bytes);
      expect_right(*on_, binding);
      const CudaGraph graph = must(CudaGraph::capture(std::move(binding)));
    }
  }
}

TEST_F(Captures, AGraphThatFailsLeavesTheOneBefore) {
  Binding binding = must(executable_->bind(on_->arguments()));
  void* graph = must(binding.graph());
  script_cuda(fail_nth("cuStreamEndCapture", 1, CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_FALSE(binding.graph().ok());
  EXPECT_OK(on_->poison());
  launch(graph);
  EXPECT_TRUE(must(on_->is_right()));
}

// A graph of a binding with a workspace from the pool has a workspace of its own, which stays the
// graph's.
TEST_F(Captures, AGraphKeepsItsWorkspace) {
  Binding binding = must(executable_->bind(on_->arguments(), Workspace::stream_ordered()));
  void* graph = must(binding.graph());
  const std::int64_t bytes = standin::live().bytes;
  const auto workspace = must(cuda::DeviceBuffer::allocate(
      executable_->device(), static_cast<std::size_t>(executable_->workspace_bytes())));
  EXPECT_OK(binding.set_workspace(workspace.data()));
  EXPECT_EQ(standin::live().bytes - bytes, executable_->workspace_bytes());
  EXPECT_OK(on_->poison());
  launch(graph);
  EXPECT_TRUE(must(on_->is_right()));
  expect_right(*on_, binding);
}

TEST_F(Captures, AGraphKeepsItsWorkspaceWhenTheBindingIsCaptured) {
  Binding binding = must(executable_->bind(on_->arguments(), Workspace::stream_ordered()));
  void* graph = must(binding.graph());
  const std::int64_t bytes = standin::live().bytes;
  const CudaGraph captured = must(CudaGraph::capture(std::move(binding)));
  EXPECT_EQ(standin::live().bytes, bytes);
  EXPECT_OK(on_->poison());
  launch(graph);
  EXPECT_TRUE(must(on_->is_right()));
}

TEST_F(Captures, WhatThrowsWhileItIsRecordedLeavesNoGraph) {
  const cuda::Stream stream = must(cuda::Stream::create(runtime_->device()));
  const std::int64_t graphs = standin::live().graphs;
  const auto throwing = [](void*) -> Status { throw std::runtime_error("of the callback"); };
  EXPECT_THROW((void)cuda::Recording::make(stream, throwing), std::runtime_error);
  EXPECT_EQ(standin::live().graphs, graphs);
}

// A stream that the application captures, in the mode of PyTorch's graphs.
class Applications : public WithCase {
 protected:
  void begin() {
    EXPECT_OK(on_->poison());
    stream_.emplace(must(cuda::Stream::create(runtime_->device())));
    cuda::Scope scope;
    EXPECT_OK(scope.enter(runtime_->device()));
    EXPECT_EQ(driver_->stream_begin_capture(static_cast<CUstream>(stream_->handle()),
                                            CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_SUCCESS);
  }
  // Ends the capture, and launches what it has recorded.
  void launch() {
    CUgraph graph = nullptr;
    ASSERT_EQ(driver_->stream_end_capture(static_cast<CUstream>(stream_->handle()), &graph),
              CUDA_SUCCESS);
    ASSERT_TRUE(runtime_->device().make_current().ok());
    CUgraphExec exec = nullptr;
    ASSERT_EQ(driver_->graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver_->graph_launch(exec, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver_->graph_exec_destroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(driver_->graph_destroy(graph), CUDA_SUCCESS);
  }
  void SetUp() override {
    WithCase::SetUp();
    driver_ = &*must(cuda::driver());
  }
  void TearDown() override {
    stream_.reset();
    WithCase::TearDown();
  }
  Result<Binding> bind(void* stream) {
    return executable_->bind(on_->arguments(), Workspace::owned(), kKeptAddresses, stream);
  }

  const cuda::Driver* driver_ = nullptr;
  std::optional<cuda::Stream> stream_;
};

TEST_F(Applications, BindDuringACaptureAndCreateNoHandle) {
  load(make_plan({.steps = 2, .derives_each = true}));
  const std::int64_t handles = standin::live().handles;
  begin();
  std::vector<Binding> bindings;
  for (int i = 0; i < 3; ++i) bindings.push_back(must(bind(stream_->handle())));
  for (Binding& binding : bindings) EXPECT_OK(binding.execute(stream_->handle()));
  EXPECT_EQ(standin::live().handles, handles);
  launch();
  EXPECT_TRUE(must(on_->is_right()));
  // Later bindings make up for it.
  bindings.push_back(must(bind(stream_->handle())));
  EXPECT_EQ(standin::live().handles, 1 + 4) << "one for loads, and one for each binding";
}

// They do not say which stream: then handles are created, in a mode that the capture survives.
TEST_F(Applications, BindOrLoadDuringACaptureThatIsNotKnown) {
  load(make_plan());
  std::vector<Binding> before;
  before.push_back(must(executable_->bind(on_->arguments())));
  begin();
  Binding binding = must(executable_->bind(on_->arguments()));
  const Executable other = must(Executable::load(runtime_, make_plan({.derives_once = true})));
  before.clear();
  EXPECT_OK(binding.execute(stream_->handle()));
  launch();
  EXPECT_TRUE(must(on_->is_right()));
}

// On a stream that waits for the default one, which copies must not use.
TEST_F(Applications, ALoadOfAnotherThreadLeavesACaptureAsItIs) {
  load(make_plan({.checks = true}));
  cuda::Scope scope;
  EXPECT_OK(scope.enter(runtime_->device()));
  CUstream blocking = nullptr;
  ASSERT_EQ(driver_->stream_create(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(driver_->stream_begin_capture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  std::jthread([&] {
    const plan::Plan plan = make_plan({.derives_once = true, .checks = true});
    const Executable other = must(Executable::load(runtime_, plan));
    const Case on = must(Case::make(other.device(), plan, 2));
    const Binding binding = must(other.bind(on.arguments()));
  }).join();
  CUgraph graph = nullptr;
  EXPECT_EQ(driver_->stream_end_capture(blocking, &graph), CUDA_SUCCESS);
  if (graph != nullptr) driver_->graph_destroy(graph);
  EXPECT_EQ(driver_->stream_destroy(blocking), CUDA_SUCCESS);
}

TEST_F(Applications, BindValuesThatWereCheckedBeforeTheCapture) {
  load(make_plan({.checks = true}));
  begin();
  const auto refused = bind(stream_->handle());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::binding);
  EXPECT_THAT(refused.error().to_text(), HasSubstr("bind or call it once before the capture"));
  launch();
  { const Binding eager = must(bind(stream_->handle())); }
  begin();
  Binding binding = must(bind(stream_->handle()));
  EXPECT_OK(binding.execute(stream_->handle()));
  launch();
  EXPECT_TRUE(must(on_->is_right()));
}

TEST_F(Captures, AFaultOfTheDeviceIsBehindAFailureOfCudnn) {
  Binding binding = must(executable_->bind(on_->arguments()));
  script_cudnn(fail_nth("cudnnBackendExecute", 1, CUDNN_STATUS_EXECUTION_FAILED, "no launch"));
  const Status alone = binding.execute(nullptr);
  ASSERT_FALSE(alone.ok());
  EXPECT_EQ(alone.error().code, ErrorCode::cudnn) << "the driver has nothing to say";

  script_cudnn(fail_nth("cudnnBackendExecute", 1, CUDNN_STATUS_EXECUTION_FAILED, "no launch"));
  script_cuda(fail_nth("cuMemGetInfo", 1, CUDA_ERROR_LAUNCH_FAILED));
  const Status status = binding.execute(nullptr);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::cuda);
  EXPECT_EQ(cuda::failure_of(status.error()), cuda::failure_for(CUDA_ERROR_LAUNCH_FAILED));
  EXPECT_THAT(status.error().to_text(), HasSubstr("cuDNN reported: "));
}

TEST_F(Captures, AsManySetsOfAddressesAreKeptAsWasAsked) {
  constexpr int kLayers = 32;
  std::vector<Case> layers;
  for (int seed = 0; seed < kLayers; ++seed) {
    layers.push_back(must(Case::make(executable_->device(), plan_, seed)));
  }
  const auto packs_made = [] {
    return standin::cudnn().control.calls("cudnnBackendCreateDescriptor",
                                          CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  };
  Binding binding = must(executable_->bind(layers[0].arguments(), Workspace::owned(), kLayers));
  for (const bool first : {true, false}) {
    const std::int64_t before = packs_made();
    for (const Case& layer : layers) EXPECT_OK(binding.set_addresses(layer.addresses()));
    EXPECT_EQ(packs_made() - before, first ? 2 * (kLayers - 1) : 0);
  }
  EXPECT_OK(binding.set_param("p0", 31.25));
  expect_right(layers[31], binding);
  for (const std::size_t wrong : {std::size_t{0}, kMostKeptAddresses + 1}) {
    const auto refused = executable_->bind(layers[0].arguments(), Workspace::owned(), wrong);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace attn::execute
