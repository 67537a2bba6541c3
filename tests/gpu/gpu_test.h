// Base class of tests on a device. Without a device each test prints "SKIPPED: no CUDA device
// (why)", and the program ends with the number of skipped tests.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "runtime/cuda/stream.h"
#include "runtime/execute/device_tensors.h"
#include "runtime/execute/executable.h"
#include "tests/gpu/plain_attention.h"

namespace attn::testing {

// The reason why there is no device, or "".
std::string no_device_because();

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override;
  const cuda::Device& device() const { return *device_; }

 private:
  std::optional<cuda::Device> device_;
};

// Plain causal attention, compiled for the local GPU by a worker process, once per test program.
const plan::Plan& causal_plan();

// A loaded plan with device memory for its tensors, and random inputs.
struct Loaded {
  execute::Executable executable;
  execute::DeviceTensors tensors;
  std::map<std::string, io::HostTensor> inputs;

  // Fills outputs with NaN, executes, and synchronizes.
  void run(execute::Binding& binding);
  execute::Arguments arguments(double scale) const;
};
Loaded load_causal();

}  // namespace attn::testing
