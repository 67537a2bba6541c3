// Binding checks with a real driver; tests/unit/runtime/execute tests all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/gpu_test.h"

namespace attn::execute {
namespace {

using ::testing::HasSubstr;

class BindOnDevice : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) loaded_.emplace(testing::load_causal());
  }

  // Binds the plan's tensors with one of them changed, and returns the error message.
  template <typename Change>
  std::string message(const std::string& name, Change change) {
    const Arguments fitting = loaded_->arguments(0.125);
    Arguments arguments;
    for (const Arguments::Tensor& tensor : fitting.tensors()) {
      TensorView view = tensor.view;
      if (tensor.name == name) change(view);
      arguments.tensor(tensor.name, view);
    }
    const auto binding = loaded_->executable.bind(arguments.scalar("scale", 0.125));
    if (binding.ok()) return "accepted";
    EXPECT_EQ(binding.error().code, ErrorCode::binding);
    return binding.error().message;
  }

  std::optional<testing::Loaded> loaded_;
};

TEST_F(BindOnDevice, TheTensorsThatFitAreAccepted) {
  EXPECT_EQ(message("q", [](TensorView&) {}), "accepted");
}

TEST_F(BindOnDevice, HostMemoryIsRefused) {
  std::vector<std::uint64_t> host(1 << 20);
  EXPECT_THAT(message("q",
                      [&](TensorView& view) {
                        const auto address = reinterpret_cast<std::uintptr_t>(host.data());
                        view.data = reinterpret_cast<void*>((address + 15) / 16 * 16);
                      }),
              HasSubstr("tensor 'q' is in host memory"));
}

TEST_F(BindOnDevice, AMisalignedAddressIsRefused) {
  EXPECT_THAT(
      message("k", [](TensorView& view) { view.data = static_cast<std::byte*>(view.data) + 2; }),
      HasSubstr("not a multiple of 16 bytes"));
}

TEST_F(BindOnDevice, OtherStridesAreRefused) {
  EXPECT_THAT(message("v", [](TensorView& view) { std::swap(view.strides[1], view.strides[2]); }),
              HasSubstr("tensor 'v' has strides"));
}

TEST_F(BindOnDevice, AMisalignedWorkspaceIsRefused) {
  if (loaded_->executable.workspace_bytes() == 0) {
    GTEST_SKIP() << "SKIPPED: this plan needs no workspace";
  }
  const cuda::DeviceBuffer buffer =
      cuda::DeviceBuffer::allocate(
          device(), static_cast<std::size_t>(loaded_->executable.workspace_bytes()) + 64)
          .value();
  const auto binding = loaded_->executable.bind(
      loaded_->arguments(0.125), Workspace::of(static_cast<std::byte*>(buffer.data()) + 64));
  ASSERT_FALSE(binding.ok());
  EXPECT_THAT(binding.error().message, HasSubstr("the workspace is at address"));
}

TEST_F(BindOnDevice, MemoryOfAnotherDeviceIsRefused) {
  if (cuda::device_count().value() < 2) GTEST_SKIP() << "SKIPPED: needs two CUDA devices";
  const cuda::Device other = cuda::Device::open(1).value();
  const cuda::DeviceBuffer buffer = cuda::DeviceBuffer::allocate(other, 1 << 20).value();
  EXPECT_THAT(message("q", [&](TensorView& view) { view.data = buffer.data(); }),
              HasSubstr("in memory of CUDA device 1 but the plan is loaded on device 0"));
}

}  // namespace
}  // namespace attn::execute
