// Runs cuDNN in this process, on the stub driver library without a device.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include "runtime/cudnn/compile.h"
#include "runtime/cudnn/descriptor.h"
#include "runtime/worker/driver_image.h"
#include "tests/support/own_process.h"
#include "tests/unit/runtime/worker/fixtures.h"
#include "tests/unit/runtime/worker/graphs.h"

namespace attn::testing {
namespace {

using ::testing::Each;
using ::testing::Ge;

class InProcess : public ::testing::Test {
 protected:
  // In a process of its own: a loaded library stays loaded, and other tests load another driver.
  template <typename Body>
  void with_cudnn(const Body& body) {
    expect_in_own_process([&] {
      const Status loaded = worker::load_nodriver();
      ASSERT_TRUE(loaded.ok()) << loaded.error().to_text();
      auto library = cudnn::Library::load();
      ASSERT_TRUE(library.ok()) << library.error().to_text();
      library_ = std::move(library).value();
      body();
      library_.reset();
    });
  }

  Result<plan::CompiledStep> compile(const AttentionShape& shape, Mask mask) {
    return cudnn::compile(*library_, attention_graph(shape, mask), device_json("h200"),
                          [this](const cudnn::Progress& step) { progress_.push_back(step); });
  }

  std::shared_ptr<const cudnn::Library> library_;
  std::vector<cudnn::Progress> progress_;
};

TEST_F(InProcess, TheDriverIsOursAndHasNoDevice) {
  with_cudnn([] {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(driver, nullptr);
    const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    ASSERT_NE(init, nullptr);
    EXPECT_EQ(init(0), 100);  // CUDA_ERROR_NO_DEVICE
    EXPECT_FALSE(worker::load_nodriver().ok()) << "a second one would not be found";
  });
}

TEST_F(InProcess, NvrtcIsFound) {
  with_cudnn([this] { EXPECT_FALSE(library_->nvrtc_path().empty()); });
}

TEST_F(InProcess, DescriptorsAreDestroyedAfterSuccess) {
  with_cudnn([this] {
    const std::int64_t before = cudnn::Descriptor::live_count();
    const auto step = compile({}, Mask::causal);
    ASSERT_TRUE(step.ok()) << step.error().to_text();
    EXPECT_EQ(cudnn::Descriptor::live_count(), before);
  });
}

TEST_F(InProcess, DescriptorsAreDestroyedAfterFailure) {
  with_cudnn([this] {
    const std::int64_t before = cudnn::Descriptor::live_count();
    AttentionShape refused;
    refused.head_dim = 100;
    EXPECT_FALSE(compile(refused, Mask::none).ok());
    EXPECT_EQ(cudnn::Descriptor::live_count(), before);
  });
}

TEST_F(InProcess, ProgressComesBeforeEachStep) {
  with_cudnn([this] {
    ASSERT_TRUE(compile({}, Mask::none).ok());
    std::vector<int> tensors;
    std::vector<int> operations;
    std::vector<std::string> others;
    for (const cudnn::Progress& step : progress_) {
      if (step.stage == "operation") operations.push_back(step.node);
      if (step.node < 0) others.push_back(step.stage);
      if (step.stage == "tensor") tensors.push_back(step.node);
    }
    EXPECT_THAT(tensors, Each(Ge(0)));
    EXPECT_EQ(tensors.size(), attention_graph({}, Mask::none).tensors.size());
    EXPECT_THAT(operations, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
    ASSERT_EQ(others.size(), 4U);
    EXPECT_THAT(others,
                ::testing::ElementsAre("device properties", "operation graph", "heuristics A",
                                       ::testing::StartsWith("plan (engine ")));
  });
}

TEST_F(InProcess, TheSameGraphGivesTheSameEngine) {
  with_cudnn([this] {
    const auto first = compile({}, Mask::causal);
    const auto second = compile({}, Mask::causal);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(first->engine, second->engine);
    EXPECT_EQ(first->knobs, second->knobs);
    EXPECT_EQ(first->workspace_bytes, second->workspace_bytes);
  });
}

TEST_F(InProcess, GroupedQueryHeadsNeedOnlyASmallerHeadCount) {
  with_cudnn([this] {
    AttentionShape shape;
    shape.heads_kv = 2;
    const auto step = compile(shape, Mask::causal);
    EXPECT_TRUE(step.ok()) << step.error().to_text();
  });
}

}  // namespace
}  // namespace attn::testing
