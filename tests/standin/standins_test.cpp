// Tests that the stand-ins detect violations.
#include "tests/standin/standins.h"

#include <gmock/gmock.h>

#include <array>
#include <optional>
#include <thread>

#include "runtime/cuda/capture.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/graph.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/stream.h"
#include "runtime/cudnn/api.h"
#include "runtime/cudnn/execution.h"
#include "tests/standin/plans.h"

namespace attn::standin {
namespace {

using ::testing::HasSubstr;

// Tests that violate contracts on purpose.
class StandinsTest : public StandinTest {
 protected:
  void expect_violation(const std::string& words) {
    EXPECT_THAT(violations(), HasSubstr(words));
    cudnn().control.reset();
    cuda().control.reset();
  }
};

TEST_F(StandinsTest, TheDriverIsTheStandIn) {
  const auto driver = attn::cuda::driver();
  ASSERT_TRUE(driver.ok()) << driver.error().to_text();
  EXPECT_EQ(*attn::cuda::device_count(), 2);
  const int sms[] = {80, 90, 100};
  cuda().set_devices(3, sms);
  EXPECT_EQ(*attn::cuda::device_count(), 3);
  EXPECT_EQ(attn::cuda::Device::open(2)->sm(), 100);
}

TEST_F(StandinsTest, DevicesHaveMemoryOfTheirOwn) {
  const auto first = attn::cuda::Device::open(0), second = attn::cuda::Device::open(1);
  const auto there = attn::cuda::DeviceBuffer::allocate(*second, 100);
  ASSERT_TRUE(there.ok());
  const auto* inside = static_cast<const std::byte*>(there->data()) + 99;
  const auto info = *attn::cuda::classify(inside);
  EXPECT_EQ(info.kind, attn::cuda::MemoryKind::device);
  EXPECT_EQ(info.device, 1);
  EXPECT_EQ(info.end, reinterpret_cast<std::uintptr_t>(inside + 1));
  EXPECT_EQ(attn::cuda::classify(inside + 1)->kind, attn::cuda::MemoryKind::unregistered);
  EXPECT_EQ(live().bytes, 100);
  std::array<double, 4> host{};
  EXPECT_EQ(attn::cuda::classify(host.data())->kind, attn::cuda::MemoryKind::unregistered);
  cuda().declare(host.data(), sizeof(host), STANDIN_PINNED);
  EXPECT_EQ(attn::cuda::classify(&host[3])->kind, attn::cuda::MemoryKind::host);
  cuda().declare(host.data(), sizeof(host), STANDIN_MANAGED);
  EXPECT_EQ(attn::cuda::classify(&host[3])->kind, attn::cuda::MemoryKind::managed);
}

TEST_F(StandinsTest, MemoryRunsOut) {
  cuda().set_memory(1000);
  const auto device = attn::cuda::Device::open(0);
  const auto some = attn::cuda::DeviceBuffer::allocate(*device, 600);
  EXPECT_TRUE(some.ok());
  const auto more = attn::cuda::DeviceBuffer::allocate(*device, 600);
  ASSERT_FALSE(more.ok());
  EXPECT_THAT(more.error().message, HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
}

TEST_F(StandinsTest, WritingBesideAnAllocationIsSeen) {
  {
    const auto device = attn::cuda::Device::open(0);
    const auto buffer = attn::cuda::DeviceBuffer::allocate(*device, 100);
    static_cast<std::byte*>(buffer->data())[100] = std::byte{1};
  }
  expect_violation("written before or after an allocation");
}

TEST_F(StandinsTest, WhatIsLeftInAContextIsSeen) {
  void* stream = nullptr;
  {
    const auto device = attn::cuda::Device::open(0);
    ASSERT_TRUE(device->make_current().ok());
    CUstream made = nullptr;
    ASSERT_EQ((*attn::cuda::driver())->stream_create(&made, 0), CUDA_SUCCESS);
    stream = made;
  }
  EXPECT_EQ((*attn::cuda::driver())->stream_destroy(static_cast<CUstream>(stream)), CUDA_SUCCESS);
  expect_violation("leaves objects in the context");
}

TEST_F(StandinsTest, ScriptsCountCalls) {
  const StandinRule second = fail_nth("cuStreamCreate", 2, CUDA_ERROR_OUT_OF_MEMORY);
  cuda().control.script(&second);
  const auto device = attn::cuda::Device::open(0);
  EXPECT_TRUE(attn::cuda::Stream::create(*device).ok());
  EXPECT_FALSE(attn::cuda::Stream::create(*device).ok());
  EXPECT_TRUE(attn::cuda::Stream::create(*device).ok());
  EXPECT_EQ(cuda().control.calls("cuStreamCreate", STANDIN_ANY), 3);
}

// Opens a device, makes its context current, and loads cuDNN.
class StandinCudnnTest : public StandinsTest {
 protected:
  void SetUp() override {
    StandinsTest::SetUp();
    device_.emplace(*attn::cuda::Device::open(0));
    ASSERT_TRUE(device_->make_current().ok());
    library_ = *attn::cudnn::Library::load(folder());
  }
  void TearDown() override {
    device_.reset();
    StandinsTest::TearDown();
  }
  const attn::cudnn::Api& api() const { return library_->api(); }
  attn::cudnn::Session session() const { return *attn::cudnn::Session::create(library_); }

  std::optional<attn::cuda::Device> device_;
  std::shared_ptr<const attn::cudnn::Library> library_;
};

TEST_F(StandinCudnnTest, DestroyedDescriptorsAreKnown) {
  cudnnBackendDescriptor_t raw = nullptr;
  ASSERT_EQ(api().cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &raw),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(live().descriptors, 1);
  EXPECT_EQ(api().cudnnBackendDestroyDescriptor(raw), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(api().cudnnBackendDestroyDescriptor(raw), CUDNN_STATUS_BAD_PARAM);
  expect_violation("cudnnBackendDestroyDescriptor: no such descriptor");
}

TEST_F(StandinCudnnTest, AttributesHaveTypes) {
  cudnnBackendDescriptor_t raw = nullptr;
  api().cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &raw);
  const float wrong = 1;
  EXPECT_EQ(
      api().cudnnBackendSetAttribute(raw, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1, &wrong),
      CUDNN_STATUS_BAD_PARAM);
  expect_violation("wrong type or number of elements");
  EXPECT_EQ(api().cudnnBackendSetAttribute(raw, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                                           1, &wrong),
            CUDNN_STATUS_BAD_PARAM);
  expect_violation("TENSOR has no such attribute");
  EXPECT_EQ(api().cudnnBackendFinalize(raw), CUDNN_STATUS_BAD_PARAM);
  expect_violation("TENSOR lacks an attribute");
  api().cudnnBackendDestroyDescriptor(raw);
}

TEST_F(StandinCudnnTest, AHandleMustOutliveItsPlans) {
  std::optional<attn::cudnn::Session> handle = session();
  const auto plan = attn::cudnn::LoadedPlan::load(*handle, make_plan().compiled[0].cudnn_plan);
  ASSERT_TRUE(plan.ok()) << plan.error().to_text();
  EXPECT_EQ(plan->workspace_bytes(), 512);
  handle.reset();
  expect_violation("plans that were loaded with it are alive");
}

// Prepares a pack for plans of one step without params.
class StandinExecuteTest : public StandinCudnnTest {
 protected:
  void SetUp() override {
    StandinCudnnTest::SetUp();
    memory_ = *attn::cuda::DeviceBuffer::allocate(*device_, 4096);
    plan_ = make_plan({.params = 0});
    ASSERT_TRUE(plan::validate(plan_.program).ok());
  }
  void TearDown() override {
    memory_ = {};
    StandinCudnnTest::TearDown();
  }
  // Memory holds q and o of 128 bytes, at 0 and 256, and the workspace at 512.
  attn::cudnn::VariantPack pack(void* constant) const {
    auto* base = static_cast<std::byte*>(memory_.data());
    const std::vector<graph::Uid> uids = {1, 2, 3};
    const std::vector<void*> addresses = {base, constant, base + 256};
    return *attn::cudnn::VariantPack::create(*library_, uids, addresses, base + 512);
  }

  struct alignas(16) Constant {
    float value = 0.5;
    float next = 0.5;
  };
  Constant constant_;
  attn::cuda::DeviceBuffer memory_;
  plan::Plan plan_;
};

TEST_F(StandinExecuteTest, ExecutesWriteADigestOfWhatTheyRead) {
  attn::cudnn::Session handle = session();
  const auto plan = *attn::cudnn::LoadedPlan::load(handle, plan_.compiled[0].cudnn_plan);
  const auto bound = pack(&constant_.value);
  ASSERT_TRUE(memory_.fill(7).ok());
  ASSERT_TRUE(plan.execute(handle, bound).ok());
  std::vector<std::byte> o(128);
  ASSERT_TRUE(memory_.download(o, 256).ok());
  const Bytes inputs = {{"q", std::vector<std::byte>(128, std::byte{7})}};
  EXPECT_EQ(o, expected_outputs(plan_, inputs, {}).at("o"));
  ASSERT_TRUE(memory_.fill(8).ok());
  ASSERT_TRUE(plan.execute(handle, bound).ok());
  ASSERT_TRUE(memory_.download(o, 256).ok());
  EXPECT_NE(o, expected_outputs(plan_, inputs, {}).at("o"));
}

TEST_F(StandinExecuteTest, OperandsAreLookedAt) {
  attn::cudnn::Session handle = session();
  const auto plan = *attn::cudnn::LoadedPlan::load(handle, plan_.compiled[0].cudnn_plan);
  EXPECT_FALSE(plan.execute(handle, pack(&constant_.next)).ok());
  expect_violation("a scalar that is not aligned to 16 bytes");
  EXPECT_FALSE(plan.execute(handle, pack(memory_.data())).ok());
  expect_violation("a scalar that is not in host memory");
  const auto bound = pack(&constant_.value);
  memory_ = {};
  EXPECT_FALSE(plan.execute(handle, bound).ok());
  expect_violation("memory that is not the device's");
}

// Breaks contracts while an execute in another thread is blocked.
TEST_F(StandinExecuteTest, WhatHappensDuringAnExecuteIsSeen) {
  attn::cudnn::Session handle = session();
  const auto plan = *attn::cudnn::LoadedPlan::load(handle, plan_.compiled[0].cudnn_plan);
  std::optional<attn::cudnn::VariantPack> bound = pack(&constant_.value);
  const StandinRule rule = block_nth("cudnnBackendExecute", 1);
  cudnn().control.script(&rule);
  std::thread other([&] {
    ASSERT_TRUE(device_->make_current().ok());
    EXPECT_TRUE(plan.execute(handle, *bound).ok());
  });
  while (cudnn().control.blocked() == 0) std::this_thread::yield();
  const auto second = pack(&constant_.value);
  EXPECT_TRUE(plan.execute(handle, second).ok());
  EXPECT_THAT(violations(), HasSubstr("cudnnBackendExecute: a handle that another thread uses"));
  api().cudnnBackendDestroyDescriptor(bound->descriptor());
  EXPECT_THAT(violations(), HasSubstr("VARIANT_PACK that executes"));
  constant_.value = 2;
  cudnn().control.release();
  other.join();
  EXPECT_THAT(violations(), HasSubstr("a scalar that changed during the call"));
  bound.reset();  // destroys the descriptor a second time
  expect_violation("no such descriptor");
}

TEST_F(StandinExecuteTest, GraphsDoLaterWhatWasCaptured) {
  attn::cudnn::Session handle = session();
  const auto plan = *attn::cudnn::LoadedPlan::load(handle, plan_.compiled[0].cudnn_plan);
  const auto bound = pack(&constant_.value);
  const auto stream = *attn::cuda::Stream::create(*device_);
  ASSERT_TRUE(memory_.fill(7).ok());
  const auto graph = attn::cuda::Graph::capture(*device_, [&](void* captured) -> Status {
    ATTN_RETURN_IF_ERROR(handle.set_stream(captured));
    return plan.execute(handle, bound);
  });
  ASSERT_TRUE(graph.ok()) << graph.error().to_text();
  std::vector<std::byte> o(128);
  ASSERT_TRUE(memory_.download(o, 256).ok());
  EXPECT_EQ(o, std::vector<std::byte>(128, std::byte{7}));
  ASSERT_TRUE(graph->launch(stream.handle()).ok());
  ASSERT_TRUE(memory_.download(o, 256).ok());
  const Bytes inputs = {{"q", std::vector<std::byte>(128, std::byte{7})}};
  EXPECT_EQ(o, expected_outputs(plan_, inputs, {}).at("o"));
}

TEST_F(StandinCudnnTest, NothingIsMadeWhileAStreamCaptures) {
  const auto creates = attn::cuda::Graph::capture(
      *device_, [&](void*) { return attn::cudnn::Session::create(library_).status(); });
  EXPECT_TRUE(creates.ok());
  expect_violation("cudnnCreate: while a stream captures");
}

TEST_F(StandinCudnnTest, InRelaxedModeItIs) {
  const auto graph = attn::cuda::Graph::capture(*device_, [&](void*) -> Status {
    const attn::cuda::RelaxedCapture relaxed(*device_);
    ATTN_ASSIGN(auto buffer, attn::cuda::DeviceBuffer::allocate(*device_, 16));
    ATTN_RETURN_IF_ERROR(buffer.fill(1));
    return attn::cudnn::Session::create(library_).status();
  });
  EXPECT_TRUE(graph.ok());
}

TEST(Plans, AreValidAndDiffer) {
  const auto all = [](int number) {
    return make_plan({.number = number,
                      .steps = 3,
                      .params = 2,
                      .derives_once = true,
                      .derives_each = true,
                      .checks = true});
  };
  for (int number = 0; number < 3; ++number) {
    const Status valid = plan::validate(all(number).program);
    EXPECT_TRUE(valid.ok()) << valid.error().to_text();
  }
  EXPECT_EQ(all(1), all(1));
  EXPECT_NE(all(1).signature, all(2).signature);
  const Bytes inputs = {{"q", std::vector<std::byte>(128)}, {"table", std::vector<std::byte>(64)}};
  const Params params = {{"p0", 1}, {"p1", 2}};
  EXPECT_NE(expected_outputs(all(1), inputs, params), expected_outputs(all(2), inputs, params));
}

}  // namespace
}  // namespace attn::standin
