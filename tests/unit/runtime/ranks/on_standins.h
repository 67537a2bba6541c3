// Ranks that are threads, on the stand-ins for the driver and NCCL.
#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <optional>
#include <vector>

#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/stream.h"
#include "tests/standin/standins.h"
#include "tests/support/in_ranks.h"

namespace attn::ranks {

template <typename T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().to_text());
  return std::move(result).value();
}

class OnStandins : public standin::StandinTest {
 protected:
  void SetUp() override {
    StandinTest::SetUp();
    standin::nccl().control.reset();
    device_.emplace(must(cuda::Device::open(0)));
  }
  void TearDown() override {
    device_.reset();
    StandinTest::TearDown();
    EXPECT_EQ(standin::nccl().control.live(nullptr), 0);
    std::string text(4096, '\0');
    text.resize(standin::nccl().control.violations(text.data(), text.size()));
    EXPECT_EQ(text, "");
  }

  static void in_ranks(int count, const std::function<void(int rank)>& body) {
    attn::testing::in_ranks(count, body);
  }

  const cuda::Device& device() const { return *device_; }
  std::optional<cuda::Device> device_;
};

// Device memory of floats.
class Floats {
 public:
  Floats(const cuda::Device& device, const std::vector<float>& values)
      : size_(values.size()),
        buffer_(must(cuda::DeviceBuffer::allocate(device, values.size() * sizeof(float)))) {
    EXPECT_TRUE(set(values).ok());
  }
  Status set(const std::vector<float>& values) {
    return buffer_.upload(std::as_bytes(std::span(values)));
  }
  std::vector<float> get() const {
    std::vector<float> values(size_);
    EXPECT_TRUE(buffer_.download(std::as_writable_bytes(std::span(values))).ok());
    return values;
  }
  float* data() const { return static_cast<float*>(buffer_.data()); }
  std::size_t bytes() const { return buffer_.size(); }

 private:
  std::size_t size_;
  cuda::DeviceBuffer buffer_;
};

}  // namespace attn::ranks
