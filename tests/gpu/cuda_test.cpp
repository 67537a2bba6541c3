#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "bench/quiet.h"
#include "runtime/cuda/memory.h"
#include "tests/gpu/gpu_test.h"

namespace attn::cuda {
namespace {

class Cuda : public testing::GpuTest {};

TEST_F(Cuda, DeviceHasPlausibleProperties) {
  EXPECT_EQ(device().ordinal(), 0);
  EXPECT_FALSE(device().name().empty());
  EXPECT_GE(device().sm(), 80);
  EXPECT_GE(device().l2_bytes(), 1 << 20);
}

TEST_F(Cuda, AnOrdinalOutOfRangeIsRefused) {
  EXPECT_EQ(Device::open(-1).error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(Device::open(1000).error().message, ::testing::HasSubstr("no CUDA device 1000"));
}

TEST_F(Cuda, BuffersAreFilledAndCopied) {
  DeviceBuffer buffer = DeviceBuffer::allocate(device(), 1000).value();
  ASSERT_TRUE(buffer.fill(0xff).ok());
  const std::vector<std::byte> part(10, std::byte{7});
  ASSERT_TRUE(buffer.upload(part, 500).ok());
  std::vector<std::byte> all(1000);
  ASSERT_TRUE(buffer.download(all).ok());
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i], i >= 500 && i < 510 ? std::byte{7} : std::byte{0xff}) << i;
  }
  EXPECT_EQ(buffer.upload(part, 991).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(buffer.download(all, 1).error().code, ErrorCode::invalid_argument);
}

TEST_F(Cuda, TooLargeAnAllocationNamesItsSize) {
  const auto buffer = DeviceBuffer::allocate(device(), std::size_t{1} << 50);
  ASSERT_FALSE(buffer.ok());
  EXPECT_THAT(buffer.error().message, ::testing::HasSubstr("allocating 1125899906842624 bytes"));
  EXPECT_THAT(buffer.error().message, ::testing::HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
}

TEST_F(Cuda, PointersAreClassified) {
  const DeviceBuffer buffer = DeviceBuffer::allocate(device(), 4096).value();
  const std::vector<int> host(16);
  const auto end = reinterpret_cast<std::uintptr_t>(buffer.data()) + 4096;
  for (const std::size_t offset : {0, 100, 4095}) {
    const auto info = classify(static_cast<std::byte*>(buffer.data()) + offset).value();
    EXPECT_EQ(info.kind, MemoryKind::device);
    EXPECT_EQ(info.device, 0);
    EXPECT_EQ(info.end, end);
  }
  EXPECT_EQ(classify(reinterpret_cast<const void*>(end)).value().kind, MemoryKind::unregistered);
  EXPECT_EQ(classify(host.data()).value().kind, MemoryKind::unregistered);
  EXPECT_EQ(classify(nullptr).value().kind, MemoryKind::unregistered);
}

TEST_F(Cuda, APauseTakesAsLongAsAsked) {
  const Stream stream = Stream::create(device()).value();
  const Pause pause = Pause::create(device()).value();
  Event start = Event::create(device()).value();
  Event end = Event::create(device()).value();
  ASSERT_TRUE(pause.enqueue(stream.handle(), std::chrono::microseconds(100)).ok());  // loads it
  ASSERT_TRUE(start.record(stream.handle()).ok());
  ASSERT_TRUE(pause.enqueue(stream.handle(), std::chrono::milliseconds(5)).ok());
  ASSERT_TRUE(end.record(stream.handle()).ok());
  ASSERT_TRUE(end.synchronize().ok());
  const double milliseconds = end.milliseconds_since(start).value();
  EXPECT_GE(milliseconds, 4.9);
  EXPECT_LE(milliseconds, 7.0);
}

TEST_F(Cuda, TheL2FlushRuns) {
  const Stream stream = Stream::create(device()).value();
  const L2Flush flush = L2Flush::create(device()).value();
  EXPECT_TRUE(flush.enqueue(stream.handle()).ok());
  EXPECT_TRUE(stream.synchronize().ok());
}

}  // namespace
}  // namespace attn::cuda
