// Tests runtime/cuda on a machine without a driver; the rest is in tests/gpu.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"

namespace attn::cuda {
namespace {

class NoDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count().ok()) GTEST_SKIP() << "SKIPPED: this machine has a CUDA driver";
  }
};

TEST_F(NoDriver, EverythingReturnsTheSameError) {
  const Error error = device_count().error();
  EXPECT_EQ(error.code, ErrorCode::cuda);
  EXPECT_FALSE(error.message.empty());
  EXPECT_EQ(Device::open(0).error().message, error.message);
  EXPECT_EQ(classify(&error).error().message, error.message);
}

TEST(DeviceBuffer, WithoutMemoryItHoldsNothing) {
  DeviceBuffer buffer;
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size(), 0U);
  EXPECT_TRUE(buffer.fill(1).ok());
  EXPECT_TRUE(buffer.upload({}).ok());
  std::byte byte{};
  EXPECT_EQ(buffer.download({&byte, 1}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(buffer.upload({&byte, 1}).error().message,
            "bytes 0..1 are outside a device buffer of 0 bytes");
}

TEST(MemoryKind, HasWords) {
  EXPECT_EQ(to_string(MemoryKind::unregistered), "host memory");
  EXPECT_EQ(to_string(MemoryKind::host), "pinned host memory");
  EXPECT_EQ(to_string(MemoryKind::device), "device memory");
  EXPECT_EQ(to_string(MemoryKind::managed), "managed memory");
}

}  // namespace
}  // namespace attn::cuda
