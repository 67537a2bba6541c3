#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "bench/quiet.h"
#include "runtime/execute/cuda_graph.h"
#include "tests/gpu/gpu_test.h"

namespace attn::execute {
namespace {

class Execute : public testing::GpuTest {};

constexpr double kScale = 0.125;

struct Bytes {
  std::vector<std::byte> o, lse;
  bool operator==(const Bytes&) const = default;
};

Bytes outputs(const testing::Loaded& loaded) {
  return {loaded.tensors.download_bytes("o").value(), loaded.tensors.download_bytes("lse").value()};
}

void expect_right(const testing::Loaded& loaded, double scale) {
  const testing::HostOutputs wanted = testing::causal_attention(loaded.inputs, scale);
  EXPECT_LE(testing::distance(loaded.tensors.download("o").value(), wanted.o), 4e-3);
  EXPECT_LE(testing::largest_difference(loaded.tensors.download("lse").value(), wanted.lse), 2e-3);
}

TEST_F(Execute, GivesTheRightNumbers) {
  testing::Loaded loaded = testing::load_causal();
  Binding binding = loaded.executable.bind(loaded.arguments(kScale)).value();
  loaded.run(binding);
  expect_right(loaded, kScale);
}

TEST_F(Execute, TwiceIntoPoisonedOutputsIsBitwiseEqual) {
  testing::Loaded loaded = testing::load_causal();
  Binding binding = loaded.executable.bind(loaded.arguments(kScale)).value();
  loaded.run(binding);
  const Bytes first = outputs(loaded);
  loaded.run(binding);
  EXPECT_EQ(outputs(loaded), first);
}

TEST_F(Execute, WorkspaceOfTheCallerOrOwnedIsBitwiseEqual) {
  testing::Loaded loaded = testing::load_causal();
  const auto bytes = static_cast<std::size_t>(loaded.executable.workspace_bytes()) + 256;
  cuda::DeviceBuffer workspace = cuda::DeviceBuffer::allocate(device(), bytes).value();
  ASSERT_TRUE(workspace.fill(0xff).ok());
  Binding owned = loaded.executable.bind(loaded.arguments(kScale)).value();
  loaded.run(owned);
  const Bytes wanted = outputs(loaded);
  Binding given =
      loaded.executable.bind(loaded.arguments(kScale), Workspace::of(workspace.data())).value();
  loaded.run(given);
  EXPECT_EQ(outputs(loaded), wanted);

  ASSERT_TRUE(loaded.tensors.fill("o", 0xff).ok());
  const cuda::Stream stream = cuda::Stream::create(device()).value();
  ASSERT_TRUE(owned.set_workspace(workspace.data()).ok());
  ASSERT_TRUE(owned.execute(stream.handle()).ok());
  ASSERT_TRUE(stream.synchronize().ok());
  EXPECT_EQ(outputs(loaded), wanted);
}

TEST_F(Execute, AParamIsReadAtEveryExecute) {
  testing::Loaded loaded = testing::load_causal();
  Binding binding = loaded.executable.bind(loaded.arguments(kScale)).value();
  ASSERT_TRUE(binding.set_param("scale", 0.5).ok());
  loaded.run(binding);
  expect_right(loaded, 0.5);
  ASSERT_TRUE(binding.set_param("scale", kScale).ok());
  loaded.run(binding);
  expect_right(loaded, kScale);
  EXPECT_EQ(binding.set_param("cap", 1).error().code, ErrorCode::binding);
}

// Work that is already enqueued keeps the param value it was enqueued with.
TEST_F(Execute, AParamSetLaterDoesNotReachBack) {
  testing::Loaded loaded = testing::load_causal();
  Binding binding = loaded.executable.bind(loaded.arguments(kScale)).value();
  const cuda::Stream stream = cuda::Stream::create(device()).value();
  const cuda::Pause pause = cuda::Pause::create(device()).value();
  ASSERT_TRUE(pause.enqueue(stream.handle(), std::chrono::milliseconds(20)).ok());
  ASSERT_TRUE(binding.execute(stream.handle()).ok());
  ASSERT_TRUE(binding.set_param("scale", 100).ok());
  ASSERT_TRUE(stream.synchronize().ok());
  expect_right(loaded, kScale);
}

TEST_F(Execute, ABindingOutlivesItsExecutableAndMoves) {
  testing::Loaded loaded = testing::load_causal();
  Binding binding = loaded.executable.bind(loaded.arguments(kScale)).value();
  Executable moved = std::move(loaded.executable);
  Binding moved_binding = std::move(binding);
  loaded.executable = std::move(moved);
  loaded.run(moved_binding);
  expect_right(loaded, kScale);
  loaded = testing::load_causal();  // destroys the first executable before its binding
}

TEST_F(Execute, WorksFromAThreadWithoutAContext) {
  testing::Loaded loaded = testing::load_causal();
  Binding binding = loaded.executable.bind(loaded.arguments(kScale)).value();
  std::thread([&] { loaded.run(binding); }).join();
  expect_right(loaded, kScale);
}

// A second set of tensors for the same plan, with the same inputs.
struct Other {
  explicit Other(const testing::Loaded& loaded)
      : program(loaded.executable.program()),
        tensors(DeviceTensors::allocate(loaded.executable.device(), loaded.executable.program())
                    .value()) {
    for (const auto& [name, values] : loaded.inputs) EXPECT_TRUE(tensors.upload(name, values).ok());
  }
  std::vector<void*> addresses() const { return addresses_of(program, tensors.arguments()); }
  Bytes outputs() const {
    return {tensors.download_bytes("o").value(), tensors.download_bytes("lse").value()};
  }
  const plan::Program& program;
  DeviceTensors tensors;
};

TEST_F(Execute, OtherAddressesGiveTheSameBits) {
  testing::Loaded loaded = testing::load_causal();
  Binding binding = loaded.executable.bind(loaded.arguments(kScale)).value();
  loaded.run(binding);
  const cuda::Stream stream = cuda::Stream::create(device()).value();
  for (int i = 0; i < 20; ++i) {  // more sets than a binding caches
    const Other other(loaded);
    const Status set = binding.set_addresses(other.addresses());
    ASSERT_TRUE(set.ok()) << set.error().to_text();
    ASSERT_TRUE(binding.execute(stream.handle()).ok());
    ASSERT_TRUE(stream.synchronize().ok());
    ASSERT_EQ(other.outputs(), outputs(loaded));
  }
}

TEST_F(Execute, AddressesThatDoNotFitAreRefusedAndTheOldOnesStay) {
  testing::Loaded loaded = testing::load_causal();
  Binding binding = loaded.executable.bind(loaded.arguments(kScale)).value();
  std::vector<void*> addresses = Other(loaded).addresses();
  addresses.pop_back();
  EXPECT_EQ(binding.set_addresses(addresses).error().code, ErrorCode::binding);
  std::vector<std::uint64_t> host(64);
  addresses.push_back(host.data());
  EXPECT_EQ(binding.set_addresses(addresses).error().code, ErrorCode::binding);
  loaded.run(binding);
  expect_right(loaded, kScale);
}

TEST_F(Execute, AWorkspaceFromThePoolGivesTheSameBits) {
  testing::Loaded loaded = testing::load_causal();
  Binding owned = loaded.executable.bind(loaded.arguments(kScale)).value();
  loaded.run(owned);
  const Bytes wanted = outputs(loaded);
  Binding pooled =
      loaded.executable.bind(loaded.arguments(kScale), Workspace::stream_ordered()).value();
  for (int i = 0; i < 3; ++i) {
    loaded.run(pooled);
    EXPECT_EQ(outputs(loaded), wanted);
  }
}

// The first execute of a freshly loaded plan is captured.
TEST_F(Execute, AGraphIsCapturedBeforeAnythingRan) {
  testing::Loaded loaded = testing::load_causal();
  Binding binding = loaded.executable.bind(loaded.arguments(kScale)).value();
  Result<CudaGraph> captured = CudaGraph::capture(std::move(binding));
  ASSERT_TRUE(captured.ok()) << captured.error().to_text();
  CudaGraph graph = std::move(captured).value();
  const cuda::Stream stream = cuda::Stream::create(device()).value();
  const auto launch = [&] {
    ASSERT_TRUE(loaded.tensors.fill("o", 0xff).ok());
    ASSERT_TRUE(loaded.tensors.fill("lse", 0xff).ok());
    ASSERT_TRUE(graph.launch(stream.handle()).ok());
    ASSERT_TRUE(stream.synchronize().ok());
  };
  launch();
  expect_right(loaded, kScale);
  ASSERT_TRUE(graph.set_param("scale", 0.5).ok());
  launch();
  expect_right(loaded, 0.5);
  ASSERT_TRUE(graph.set_param("scale", kScale).ok());
  const Other other(loaded);
  ASSERT_TRUE(graph.set_addresses(other.addresses()).ok());
  ASSERT_TRUE(graph.launch(stream.handle()).ok());
  ASSERT_TRUE(stream.synchronize().ok());
  launch();
  Binding again = loaded.executable.bind(loaded.arguments(kScale)).value();
  loaded.run(again);
  EXPECT_EQ(other.outputs(), outputs(loaded));
}

TEST_F(Execute, ThreadsShareAnExecutable) {
  testing::Loaded loaded = testing::load_causal();
  Binding binding = loaded.executable.bind(loaded.arguments(kScale)).value();
  loaded.run(binding);
  const Bytes wanted = outputs(loaded);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Other mine(loaded);
      const cuda::Stream stream = cuda::Stream::create(device()).value();
      Binding own =
          loaded.executable.bind(mine.tensors.arguments().scalar("scale", kScale)).value();
      for (int n = 0; n < 1000; ++n) ASSERT_TRUE(own.execute(stream.handle()).ok());
      ASSERT_TRUE(stream.synchronize().ok());
      EXPECT_EQ(mine.outputs(), wanted);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Execute, TwoDevicesInOneProcess) {
  if (cuda::device_count().value() < 2) GTEST_SKIP() << "SKIPPED: needs two CUDA devices";
  testing::Loaded loaded = testing::load_causal();
  Binding first = loaded.executable.bind(loaded.arguments(kScale)).value();
  LoadOptions options;
  options.device = 1;
  const Executable elsewhere = Executable::load(testing::causal_plan(), options).value();
  auto tensors = DeviceTensors::allocate(elsewhere.device(), elsewhere.program()).value();
  for (const auto& [name, values] : loaded.inputs) ASSERT_TRUE(tensors.upload(name, values).ok());
  Binding second = elsewhere.bind(tensors.arguments().scalar("scale", kScale)).value();
  const cuda::Stream stream = cuda::Stream::create(elsewhere.device()).value();
  for (int i = 0; i < 100; ++i) {
    if (i % 10 == 0) loaded.run(first);
    ASSERT_TRUE(second.execute(stream.handle()).ok());
  }
  ASSERT_TRUE(stream.synchronize().ok());
  EXPECT_EQ(tensors.download_bytes("o").value(), loaded.tensors.download_bytes("o").value());
}

TEST_F(Execute, PlansForAnotherCudnnOrGpuAreRefused) {
  plan::Plan plan = testing::causal_plan();
  plan.cudnn_version -= 100;
  EXPECT_EQ(Executable::load(plan).error().code, ErrorCode::plan_version);
  plan = testing::causal_plan();
  plan.target.sm = 75;
  EXPECT_EQ(Executable::load(plan).error().code, ErrorCode::plan_device);
}

TEST_F(Execute, ADamagedKernelIsAnErrorOfCudnn) {
  plan::Plan plan = testing::causal_plan();
  plan.compiled[0].cudnn_plan.resize(plan.compiled[0].cudnn_plan.size() / 2);
  EXPECT_EQ(Executable::load(plan).error().code, ErrorCode::cudnn);
}

// Executes the plan file $ATTN_GPU_PLAN, such as one compiled on another machine.
TEST_F(Execute, ThePlanFileOfTheEnvironmentRuns) {
  const char* path = std::getenv("ATTN_GPU_PLAN");
  if (path == nullptr) GTEST_SKIP() << "SKIPPED: ATTN_GPU_PLAN is not set to a plan file";
  Result<Executable> loaded = Executable::load_file(path);
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_text();
  Executable executable = std::move(loaded).value();
  DeviceTensors tensors = DeviceTensors::allocate(device(), executable.program()).value();
  std::vector<std::string> outputs;
  for (const plan::TensorInfo& tensor : executable.program().tensors) {
    if (tensor.is_output()) outputs.push_back(tensor.name);
    ASSERT_TRUE(tensors.fill(tensor.name, 0).ok());
    if (tensor.is_output() || !is_float(tensor.dtype)) continue;
    ASSERT_TRUE(tensors.fill_random(tensor.name, 1).ok());
  }
  Arguments arguments = tensors.arguments();
  for (const plan::ParamInfo& param : executable.program().params) {
    arguments.scalar(param.name, param.dtype, 1);
  }
  Binding binding = executable.bind(arguments).value();
  const cuda::Stream stream = cuda::Stream::create(device()).value();
  std::vector<std::vector<std::byte>> first;
  for (int round = 0; round < 2; ++round) {
    for (const std::string& name : outputs) ASSERT_TRUE(tensors.fill(name, 0xff).ok());
    ASSERT_TRUE(binding.execute(stream.handle()).ok());
    ASSERT_TRUE(stream.synchronize().ok());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (round == 0) first.push_back(tensors.download_bytes(outputs[i]).value());
      EXPECT_EQ(tensors.download_bytes(outputs[i]).value(), first[i]) << outputs[i];
      const io::HostTensor values = tensors.download(outputs[i]).value();
      for (double value : values.values) ASSERT_FALSE(std::isnan(value)) << outputs[i];
    }
  }
}

}  // namespace
}  // namespace attn::execute
