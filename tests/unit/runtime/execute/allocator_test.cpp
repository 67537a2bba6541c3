// Tests device memory from the application's allocator: requests, releases and failures.
#include <cuda.h>

#include <map>

#include "runtime/cuda/driver.h"
#include "runtime/cuda/failure.h"
#include "runtime/cuda/graph.h"
#include "tests/unit/runtime/execute/on_standins.h"

namespace attn::execute {
namespace {

using standin::Case;
using standin::fail_nth;
using standin::make_plan;
using ::testing::HasSubstr;

// Driver memory, with a record of the requests.
struct Pool {
  struct Block {
    cuda::DeviceBuffer buffer;
    void* stream = nullptr;
  };
  std::map<void*, Block> blocks;
  std::optional<cuda::Device> device;
  std::size_t most = SIZE_MAX;  // limit in total
  std::size_t shift = 0;        // added to each address
  int mistakes = 0;

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& [address, block] : blocks) sum += block.buffer.size() - shift;
    return sum;
  }
  std::size_t blocks_on(void* stream) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        blocks, [stream](const auto& block) { return block.second.stream == stream; }));
  }
  void* allocate(std::size_t size, void* stream) {
    if (bytes() + size > most) return nullptr;
    cuda::DeviceBuffer buffer = must(cuda::DeviceBuffer::allocate(*device, size + shift));
    void* address = static_cast<std::byte*>(buffer.data()) + shift;
    blocks[address] = {std::move(buffer), stream};
    return address;
  }
  void free(void* address, std::size_t size, void* stream) {
    const auto found = blocks.find(address);
    const bool known = found != blocks.end() && found->second.stream == stream &&
                       found->second.buffer.size() == size + shift;
    mistakes += known ? 0 : 1;
    if (found != blocks.end()) blocks.erase(found);
  }
};

// A stream that is being captured.
class Captured {
 public:
  Captured(const cuda::Device& device, unsigned flags) : driver_(*must(cuda::driver())) {
    EXPECT_OK(device.make_current());
    EXPECT_EQ(driver_.stream_create(&stream_, flags), CUDA_SUCCESS);
    EXPECT_EQ(driver_.stream_begin_capture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  }
  ~Captured() { driver_.stream_destroy(stream_); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  CUresult end() const {
    CUgraph graph = nullptr;
    const CUresult result = driver_.stream_end_capture(stream_, &graph);
    if (graph != nullptr) driver_.graph_destroy(graph);
    return result;
  }

 private:
  const cuda::Driver& driver_;
  CUstream stream_ = nullptr;
};

class Allocators : public OnStandins {
 protected:
  void SetUp() override {
    OnStandins::SetUp();
    standin::cuda();
    pool_.device = must(cuda::Device::open(0));
    plan_ = make_plan({.derives_once = true, .checks = true});
    runtime_ = with_pool();
    on_ = must(Case::make(runtime_->device(), plan_, 1));
  }
  std::shared_ptr<Runtime> with_pool() {
    auto allocator = std::make_shared<cuda::Allocator>();
    allocator->allocate = [this](std::size_t bytes, void* stream) {
      asked_.push_back(stream);
      return pool_.allocate(bytes, stream);
    };
    allocator->free = [this](void* memory, std::size_t bytes, void* stream) {
      pool_.free(memory, bytes, stream);
    };
    RuntimeOptions options;
    options.cudnn_folder = standin::folder();
    options.allocator = std::move(allocator);
    return must(Runtime::open(options));
  }
  void TearDown() override {
    on_.reset();
    runtime_.reset();
    EXPECT_EQ(pool_.blocks.size(), 0U);
    EXPECT_EQ(pool_.mistakes, 0);
    pool_ = {};
    OnStandins::TearDown();
  }

  Pool pool_;
  std::vector<void*> asked_;  // streams of the requests
  plan::Plan plan_;
  std::shared_ptr<Runtime> runtime_;
  std::optional<Case> on_;
};

TEST_F(Allocators, WhatAnExecutableHoldsIsItsDeviceBytes) {
  const Executable executable = must(Executable::load(runtime_, plan_));
  EXPECT_GT(executable.device_bytes(), 0);
  EXPECT_EQ(pool_.bytes(), static_cast<std::size_t>(executable.device_bytes()));
}

TEST_F(Allocators, AWorkspaceIsTakenForABindingOrAnExecute) {
  const Executable executable = must(Executable::load(runtime_, plan_));
  const std::size_t before = pool_.bytes();
  {
    Binding owned = must(executable.bind(on_->arguments()));
    EXPECT_EQ(pool_.bytes() - before, static_cast<std::size_t>(executable.workspace_bytes()));
    expect_right(*on_, owned);
  }
  EXPECT_EQ(pool_.bytes(), before);
  const cuda::Stream stream = must(cuda::Stream::create(runtime_->device()));
  Binding ordered = must(executable.bind(on_->arguments(), Workspace::stream_ordered()));
  asked_.clear();
  expect_right(*on_, ordered, stream.handle());
  expect_right(*on_, ordered);
  EXPECT_THAT(asked_, ::testing::ElementsAre(stream.handle(), CU_STREAM_LEGACY));
  EXPECT_EQ(pool_.bytes(), before) << "given back behind each execute";
  EXPECT_EQ(cuda_calls("cuMemAllocAsync"), 0);
}

// The graph would keep its address, which may belong to another allocation at launch.
TEST_F(Allocators, AWorkspaceOfAnExecuteCannotBeCaptured) {
  const Executable executable = must(Executable::load(runtime_, plan_));
  const cuda::Stream stream = must(cuda::Stream::create(runtime_->device()));
  Binding ordered = must(executable.bind(on_->arguments(), Workspace::stream_ordered()));
  Binding owned = must(executable.bind(on_->arguments()));
  asked_.clear();
  const auto captured = [&](Binding& binding) {
    return cuda::Recording::make(stream, [&](void* on) { return binding.execute(on); });
  };
  const auto refused = captured(ordered);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(refused.error().to_text(), HasSubstr("cannot be captured"));
  EXPECT_THAT(refused.error().to_text(), HasSubstr("a workspace owned by the binding"));
  EXPECT_TRUE(asked_.empty());
  EXPECT_OK(captured(owned).status());
  expect_right(*on_, ordered, stream.handle());
}

TEST_F(Allocators, MemoryForNoStreamIsGivenBackWhenTheDeviceIsDone) {
  const Executable executable = must(Executable::load(runtime_, plan_));
  std::optional<Binding> owned = must(executable.bind(on_->arguments()));
  const std::int64_t waited = cuda_calls("cuCtxSynchronize");
  owned.reset();
  EXPECT_EQ(cuda_calls("cuCtxSynchronize"), waited + 1);
}

// Work that was enqueued before may still use it: nothing may wait for the device.
TEST_F(Allocators, MemoryForNoStreamIsKeptWhileAStreamIsCaptured) {
  const Executable executable = must(Executable::load(runtime_, plan_));
  const std::size_t before = pool_.bytes();
  for (const unsigned flags : {unsigned{CU_STREAM_DEFAULT}, unsigned{CU_STREAM_NON_BLOCKING}}) {
    const bool blocks = flags == CU_STREAM_DEFAULT;
    std::optional<Binding> owned = must(executable.bind(on_->arguments()));
    std::optional<Binding> later = must(executable.bind(on_->arguments()));
    const std::size_t both = pool_.bytes();
    const Captured captured(runtime_->device(), flags);
    const std::int64_t waited = cuda_calls("cuCtxSynchronize");
    owned.reset();
    EXPECT_EQ(pool_.bytes(), both);
    EXPECT_EQ(cuda_calls("cuCtxSynchronize") - waited, blocks ? 0 : 1);
    EXPECT_EQ(captured.end(), blocks ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(pool_.bytes(), both);
    later.reset();
    EXPECT_EQ(pool_.bytes(), before) << "both";
  }
}

TEST_F(Allocators, WhatIsKeptIsGivenBackWithTheContextOrNotAtAll) {
  for (const bool ends : {true, false}) {
    const Captured captured(*pool_.device, CU_STREAM_NON_BLOCKING);
    on_.reset();
    runtime_ = with_pool();
    { const Executable executable = must(Executable::load(runtime_, plan_)); }
    EXPECT_GT(pool_.blocks.size(), 0U) << "what the executable held";
    if (ends) captured.end();
    runtime_.reset();
    EXPECT_EQ(pool_.blocks.empty(), ends);
    pool_.blocks.clear();
    if (!ends) captured.end();
  }
}

// After a fault of the device nothing runs any more, and no call would ever succeed.
TEST_F(Allocators, AfterAFaultMemoryIsGivenBack) {
  std::optional<Executable> executable = must(Executable::load(runtime_, plan_));
  script_cuda(fail_nth("cuCtxSynchronize", 0, CUDA_ERROR_LAUNCH_FAILED));
  executable.reset();
  EXPECT_EQ(pool_.blocks.size(), 0U);
}

TEST_F(Allocators, NoMemoryIsSaidAsTheDriverWouldSayIt) {
  const Executable executable = must(Executable::load(runtime_, plan_));
  pool_.most = pool_.bytes();
  const auto bound = executable.bind(on_->arguments());
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.error().code, ErrorCode::cuda);
  EXPECT_THAT(bound.error().message,
              HasSubstr("the application's allocator could not allocate 512 bytes"));
  EXPECT_EQ(cuda::failure_of(bound.error()), cuda::failure_for(CUDA_ERROR_OUT_OF_MEMORY));
}

TEST_F(Allocators, AnAddressThatIsNotAlignedIsRefusedAndGivenBack) {
  pool_.shift = 8;
  const auto loaded = Executable::load(runtime_, plan_);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(loaded.error().message, HasSubstr("not a multiple of 256 bytes"));
  EXPECT_EQ(pool_.blocks.size(), 0U);
}

}  // namespace
}  // namespace attn::execute
