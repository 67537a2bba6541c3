// Tests bindings on the stand-ins: errors of bind, cost and effect of changed addresses, params and
// workspaces, and the state after failures.
#include <cuda.h>
#include <cudnn_graph.h>

#include <array>
#include <optional>

#include "tests/unit/runtime/execute/on_standins.h"

namespace attn::execute {
namespace {

using standin::Case;
using standin::fail_nth;
using standin::make_plan;
using ::testing::HasSubstr;

class BindingTest : public WithCase {
 protected:
  void SetUp() override {
    OnStandins::SetUp();
    load(make_plan({.steps = 2, .params = 1, .derives_each = true}));
  }

  // The arguments with a different address for q.
  Arguments with_q(void* address) const {
    const Arguments all = on_->arguments();
    Arguments changed;
    for (Arguments::Tensor tensor : all.tensors()) {
      if (tensor.name == "q") tensor.view.data = address;
      changed.tensor(tensor.name, tensor.view);
    }
    for (const auto& scalar : all.scalars()) {
      changed.scalar(scalar.name, scalar.dtype, scalar.value);
    }
    return changed;
  }
  std::string refusal(const Arguments& arguments) const {
    const auto bound = executable_->bind(arguments);
    if (bound.ok()) return "accepted";
    EXPECT_EQ(bound.error().code, ErrorCode::binding);
    return bound.error().message;
  }
  static std::int64_t packs_made() {
    return standin::cudnn().control.calls("cudnnBackendCreateDescriptor",
                                          CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  }
};

TEST_F(BindingTest, MemoryOfEveryKind) {
  alignas(256) std::array<std::byte, 512> host{};
  EXPECT_EQ(refusal(on_->arguments()), "accepted");
  EXPECT_EQ(refusal(with_q(host.data())),
            "tensor 'q' is in host memory but must be in memory of CUDA device 0");
  standin::cuda().declare(host.data(), host.size(), STANDIN_PINNED);
  EXPECT_EQ(refusal(with_q(host.data())),
            "tensor 'q' is in pinned host memory but must be in memory of CUDA device 0");
  standin::cuda().declare(host.data(), host.size(), STANDIN_MANAGED);
  EXPECT_EQ(refusal(with_q(host.data())), "accepted");
  standin::cuda().declare(host.data(), host.size(), STANDIN_FORGOTTEN);

  const cuda::Device second = must(cuda::Device::open(1));
  std::optional<cuda::DeviceBuffer> there = must(cuda::DeviceBuffer::allocate(second, 512));
  void* const address = there->data();
  EXPECT_EQ(refusal(with_q(address)),
            "tensor 'q' is in memory of CUDA device 1 but the plan is loaded on device 0");
  there.reset();
  EXPECT_EQ(refusal(with_q(address)),
            "tensor 'q' is in host memory but must be in memory of CUDA device 0");
  EXPECT_EQ(refusal(with_q(nullptr)), "tensor 'q' has a null address");
  EXPECT_THAT(refusal(with_q(static_cast<std::byte*>(on_->addresses()[0]) + 8)),
              HasSubstr("which is not a multiple of 16 bytes"));
}

TEST_F(BindingTest, AWorkspaceOfTheCallerIsLookedAt) {
  const auto bytes = static_cast<std::size_t>(executable_->workspace_bytes());
  const auto workspace = must(cuda::DeviceBuffer::allocate(executable_->device(), bytes + 256));
  auto* address = static_cast<std::byte*>(workspace.data());
  Binding binding = must(executable_->bind(on_->arguments(), Workspace::of(address)));
  expect_right(*on_, binding);
  EXPECT_OK(binding.set_workspace(address + 256));
  expect_right(*on_, binding);
  std::array<std::byte, 16> host{};
  for (void* wrong : {static_cast<void*>(host.data()), static_cast<void*>(address + 8),
                      static_cast<void*>(nullptr)}) {
    EXPECT_EQ(executable_->bind(on_->arguments(), Workspace::of(wrong)).error().code,
              ErrorCode::binding);
    EXPECT_EQ(binding.set_workspace(wrong).error().code, ErrorCode::binding);
    expect_right(*on_, binding);
  }
  Binding owned = must(executable_->bind(on_->arguments()));
  EXPECT_OK(owned.set_workspace(address));
  expect_right(*on_, owned);
}

TEST_F(BindingTest, ParamsAreReadAtEveryExecute) {
  Binding binding = must(executable_->bind(on_->arguments()));
  for (const double value : {2.0, -3.5, 2.0}) {
    EXPECT_OK(binding.set_param("p0", value));
    on_->set_param("p0", value);
    expect_right(*on_, binding);
  }
  EXPECT_EQ(binding.set_param("p1", 1).error().code, ErrorCode::binding);
}

// Reusing eight sets of addresses is free once each was used; a ninth costs a pack per step.
TEST_F(BindingTest, PacksAreKeptForTheAddressesOfLate) {
  std::vector<Case> cases;
  for (int seed = 0; seed < 9; ++seed) {
    cases.push_back(must(Case::make(executable_->device(), plan_, seed)));
  }
  Binding binding = must(executable_->bind(cases[0].arguments()));
  for (const double param : {0.5, 1.5}) {
    const std::int64_t before = packs_made();
    EXPECT_OK(binding.set_param("p0", param));
    for (std::size_t i = 0; i < 16; ++i) {
      Case& on = cases[i % 8];
      on.set_param("p0", param);
      ASSERT_TRUE(binding.set_addresses(on.addresses()).ok());
      expect_right(on, binding);
    }
    EXPECT_EQ(packs_made() - before, param < 1 ? 14 : 0);
  }
  const std::int64_t before = packs_made();
  cases[8].set_param("p0", 1.5);
  EXPECT_OK(binding.set_addresses(cases[8].addresses()));
  expect_right(cases[8], binding);
  EXPECT_EQ(packs_made() - before, 2);
  EXPECT_OK(binding.set_addresses(cases[7].addresses()));
  EXPECT_EQ(packs_made() - before, 2);
  EXPECT_OK(binding.set_addresses(cases[0].addresses()));
  EXPECT_EQ(packs_made() - before, 4);
  expect_right(cases[0], binding);
}

TEST_F(BindingTest, AddressesThatAreRefusedChangeNothing) {
  Binding binding = must(executable_->bind(on_->arguments()));
  std::vector<void*> addresses = on_->addresses();
  std::array<std::byte, 512> host{};
  addresses[0] = host.data();
  EXPECT_EQ(binding.set_addresses(addresses).error().code, ErrorCode::binding);
  expect_right(*on_, binding);
  addresses.pop_back();
  EXPECT_EQ(binding.set_addresses(addresses).error().code, ErrorCode::binding);
  expect_right(*on_, binding);
}

TEST_F(BindingTest, AddressesThatWereTakenUncheckedAreCheckedWhenAsked) {
  Binding binding = must(executable_->bind(on_->arguments()));
  std::vector<void*> addresses = on_->addresses();
  std::array<std::byte, 512> host{};
  addresses[0] = host.data();
  EXPECT_OK(binding.set_addresses(addresses, Check::no));
  EXPECT_EQ(binding.set_addresses(addresses).error().code, ErrorCode::binding);
  EXPECT_OK(binding.set_addresses(on_->addresses()));
  expect_right(*on_, binding);
}

// A pack that cannot be created evicts the least recently used one.
TEST_F(BindingTest, APackThatCannotBeMadeChangesNothing) {
  Binding binding = must(executable_->bind(on_->arguments()));
  std::vector<Case> cases;  // all alive, so that addresses differ
  for (int seed = 2; seed < 12; ++seed) {
    Case& other = cases.emplace_back(must(Case::make(executable_->device(), plan_, seed)));
    other.set_param("p0", 1.25);
    script_cudnn(fail_nth("cudnnBackendFinalize", 1 + seed % 2, CUDNN_STATUS_INTERNAL_ERROR));
    EXPECT_EQ(binding.set_addresses(other.addresses()).error().code, ErrorCode::cudnn);
    expect_right(*on_, binding);
    EXPECT_OK(binding.set_addresses(other.addresses()));
    expect_right(other, binding);
    EXPECT_OK(binding.set_addresses(on_->addresses()));
  }
}

TEST_F(BindingTest, AWorkspaceOfThePoolIsTakenAndGivenBack) {
  Binding binding = must(executable_->bind(on_->arguments(), Workspace::stream_ordered()));
  const cuda::Stream stream = must(cuda::Stream::create(executable_->device()));
  const standin::Live before = standin::live();
  for (int i = 0; i < 3; ++i) expect_right(*on_, binding, stream.handle());
  EXPECT_EQ(cuda_calls("cuMemAllocAsync"), 3);
  EXPECT_EQ(standin::live().memory, before.memory);
  EXPECT_EQ(standin::live().bytes, before.bytes);

  script_cuda(fail_nth("cuMemAllocAsync", 1, CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_EQ(binding.execute(stream.handle()).error().code, ErrorCode::cuda);
  script_cudnn(fail_nth("cudnnBackendExecute", 1, CUDNN_STATUS_EXECUTION_FAILED));
  EXPECT_EQ(binding.execute(stream.handle()).error().code, ErrorCode::cudnn);
  EXPECT_EQ(standin::live().memory, before.memory);
  expect_right(*on_, binding, stream.handle());
  Case other = must(Case::make(executable_->device(), plan_, 2));
  other.set_param("p0", 1.25);
  EXPECT_OK(binding.set_addresses(other.addresses()));
  expect_right(other, binding, stream.handle());
}

TEST_F(BindingTest, AStreamOfAnotherDeviceIsAnError) {
  Binding binding = must(executable_->bind(on_->arguments()));
  const cuda::Stream stream = must(cuda::Stream::create(must(cuda::Device::open(1))));
  EXPECT_FALSE(binding.execute(stream.handle()).ok());
  expect_right(*on_, binding);
}

// The very first execute, captured by the caller.
TEST_F(BindingTest, TheFirstExecuteMayBeCaptured) {
  Binding binding = must(executable_->bind(on_->arguments()));
  const auto graph = must(cuda::Graph::capture(
      executable_->device(), [&](void* stream) { return binding.execute(stream); }));
  EXPECT_FALSE(must(on_->is_right()));
  EXPECT_OK(graph.launch(nullptr));
  EXPECT_TRUE(must(on_->is_right()));
  expect_right(*on_, binding);
}

class CudaGraphTest : public BindingTest {
 protected:
  static void expect_right_after_launch(Case& on, CudaGraph& graph) {
    EXPECT_OK(on.poison());
    EXPECT_OK(graph.launch(nullptr));
    EXPECT_TRUE(must(on.is_right()));
  }
};

TEST_F(CudaGraphTest, ChangesReachTheNextLaunch) {
  CudaGraph graph = must(CudaGraph::capture(must(executable_->bind(on_->arguments()))));
  expect_right_after_launch(*on_, graph);
  EXPECT_OK(graph.set_param("p0", 4));
  on_->set_param("p0", 4);
  expect_right_after_launch(*on_, graph);
  Case other = must(Case::make(executable_->device(), plan_, 2));
  other.set_param("p0", 4);
  EXPECT_OK(graph.set_addresses(other.addresses()));
  expect_right_after_launch(other, graph);
  EXPECT_EQ(cuda_calls("cuGraphInstantiateWithFlags"), 1);
  EXPECT_EQ(cuda_calls("cuGraphExecUpdate"), 2);
  for (int i = 0; i < 3; ++i) expect_right_after_launch(other, graph);
  EXPECT_EQ(cuda_calls("cuGraphExecUpdate"), 2);
}

TEST_F(CudaGraphTest, AWorkspaceOfThePoolBecomesOneOfItsOwn) {
  CudaGraph graph = must(
      CudaGraph::capture(must(executable_->bind(on_->arguments(), Workspace::stream_ordered()))));
  expect_right_after_launch(*on_, graph);
  EXPECT_EQ(cuda_calls("cuMemAllocAsync"), 0);
}

// A graph that could not be updated must not be launched in its old state.
TEST_F(CudaGraphTest, AFailedUpdateIsTriedAgain) {
  CudaGraph graph = must(CudaGraph::capture(must(executable_->bind(on_->arguments()))));
  EXPECT_OK(graph.set_param("p0", 4));
  on_->set_param("p0", 4);
  script_cudnn(fail_nth("cudnnBackendExecute", 1, CUDNN_STATUS_EXECUTION_FAILED));
  EXPECT_EQ(graph.launch(nullptr).error().code, ErrorCode::cudnn);
  script_cuda(fail_nth("cuGraphExecUpdate", 1, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE));
  script_cuda(fail_nth("cuGraphInstantiateWithFlags", 1, CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_EQ(graph.launch(nullptr).error().code, ErrorCode::cuda);
  script_cuda(fail_nth("cuGraphExecUpdate", 1, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE));
  expect_right_after_launch(*on_, graph);
}

}  // namespace
}  // namespace attn::execute
