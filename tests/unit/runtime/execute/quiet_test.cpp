// Tests that an execute allocates and locks nothing beyond what cuDNN does, by counting.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "runtime/cudnn/descriptor.h"
#include "runtime/cudnn/execution.h"
#include "tests/unit/runtime/execute/on_standins.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace {

struct Counts {
  long allocations = 0;
  long locks = 0;
  bool operator==(const Counts&) const = default;
};
thread_local Counts counts;

void* counted(void* memory) {
  ++counts.allocations;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return counted(std::malloc(size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto to = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(to, (size + to - 1) / to * to));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static const Lock lock = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++counts.locks;
  return lock(mutex);
}

namespace attn::execute {
namespace {

using standin::Case;
using standin::make_plan;

// Counts what `body` does on this thread, after a first run.
template <typename Body>
Counts counts_of(const Body& body) {
  body();
  const Counts before = counts;
  body();
  return {counts.allocations - before.allocations, counts.locks - before.locks};
}

class Quiet : public OnStandins {
 protected:
  void SetUp() override {
    OnStandins::SetUp();
    runtime_ = must(standin::open_runtime());
    on_ = must(Case::make(runtime_->device(), plan_));
    ASSERT_TRUE(runtime_->device().make_current().ok());
  }
  void TearDown() override {
    on_.reset();
    runtime_.reset();
    OnStandins::TearDown();
  }

  // What cuDNN itself does when it executes the plan's only step.
  Counts bare_execute() {
    const std::shared_ptr<const cudnn::Library> library = must(runtime_->cudnn())->library;
    const cudnn::Api& api = library->api();
    const cudnn::Session session = must(cudnn::Session::create(library));
    const auto handle = static_cast<cudnnHandle_t>(session.handle());
    const std::string& text = plan_.compiled[0].cudnn_plan;
    const cudnn::Descriptor plan =
        must(cudnn::DescriptorBuilder(api, cudnn::kExecutionPlanDescriptor)
                 .set(cudnn::kPlanHandle, handle)
                 .set_all(cudnn::kPlanJson, std::span(text.c_str(), text.size() + 1))
                 .finalize());
    const auto workspace = must(cuda::DeviceBuffer::allocate(runtime_->device(), 512));
    alignas(16) float constant = 0.5F;
    const std::vector<void*> tensors = on_->addresses();
    const std::vector<graph::Uid> uids = {1, 2, 3};
    const auto pack = must(cudnn::VariantPack::create(
        *library, uids, std::vector<void*>{tensors[0], &constant, tensors[1]}, workspace.data()));
    const Counts bare = counts_of([&] {
      ASSERT_EQ(api.cudnnBackendExecute(handle, plan.raw(), pack.descriptor()),
                CUDNN_STATUS_SUCCESS);
    });
    EXPECT_TRUE(must(on_->is_right()));
    return bare;
  }

  plan::Plan plan_ = make_plan({.params = 0});
  std::shared_ptr<Runtime> runtime_;
  std::optional<Case> on_;
};

TEST_F(Quiet, TheCountersCount) {
  const Counts some = counts_of([] {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    static std::unique_ptr<int> kept;
    kept = std::make_unique<int>(1);
  });
  EXPECT_EQ(some, (Counts{1, 1}));
}

TEST_F(Quiet, AnExecuteIsNothingButCudnns) {
  const Counts bare = bare_execute();
  EXPECT_EQ(bare.locks, 0) << "the stand-in's lookups take no mutex";
  const Executable executable = must(Executable::load(runtime_, plan_));
  Binding binding = must(executable.bind(on_->arguments()));
  const auto execute = [&] { ASSERT_TRUE(binding.execute(nullptr).ok()); };
  EXPECT_EQ(counts_of(execute), bare);
  const cuda::Stream stream = must(cuda::Stream::create(runtime_->device()));
  const auto on_two_streams = [&] {
    ASSERT_TRUE(binding.execute(stream.handle()).ok());
    ASSERT_TRUE(binding.execute(nullptr).ok());
  };
  EXPECT_EQ(counts_of(on_two_streams), (Counts{2 * bare.allocations, 0}));
}

TEST_F(Quiet, ComingBackToAddressesAllocatesNothing) {
  const Executable executable = must(Executable::load(runtime_, plan_));
  const Case other = must(Case::make(runtime_->device(), plan_, 1));
  const std::vector<void*> first = on_->addresses(), second = other.addresses();
  Binding binding = must(executable.bind(on_->arguments()));
  EXPECT_EQ(counts_of([&] {
              ASSERT_TRUE(binding.set_addresses(second).ok());
              ASSERT_TRUE(binding.set_addresses(first).ok());
            }),
            Counts());
}

TEST_F(Quiet, OtherAddressesOfKernelsAllocateNothing) {
  const plan::Plan plan = standin::plan_of(plan::testing::kernel_program());
  const Executable executable = must(Executable::load(runtime_, plan));
  const Case on = must(Case::make(runtime_->device(), plan));
  Binding binding = must(executable.bind(on.arguments()));
  std::vector<Case> others;
  for (int seed = 0; seed < 40; ++seed)
    others.push_back(must(Case::make(runtime_->device(), plan, seed)));
  std::vector<std::vector<void*>> addresses;
  for (const Case& each : others) addresses.push_back(each.addresses());
  std::size_t next = 0;
  EXPECT_EQ(counts_of([&] {
              for (int i = 0; i < 20; ++i)
                ASSERT_TRUE(binding.set_addresses(addresses[next++], Check::no).ok());
            }),
            Counts());
}

TEST_F(Quiet, ALaunchOfAGraphIsNothingButTheDrivers) {
  const Executable executable = must(Executable::load(runtime_, plan_));
  CudaGraph graph = must(CudaGraph::capture(must(executable.bind(on_->arguments()))));
  const Counts launch = counts_of([&] { ASSERT_TRUE(graph.launch(nullptr).ok()); });
  EXPECT_EQ(launch.locks, 0);
  EXPECT_LE(launch.allocations, bare_execute().allocations);  // those of the work itself
}

}  // namespace
}  // namespace attn::execute
