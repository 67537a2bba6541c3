// What every test on a device starts from. Without a device each test prints
// "SKIPPED: no CUDA device (why)" and the program ends with a line that counts them.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "runtime/cuda/stream.h"
#include "runtime/execute/device_tensors.h"
#include "runtime/execute/executable.h"
#include "tests/gpu/plain_attention.h"

namespace attn::testing {

// Why there is no device to test on, or an empty text.
std::string no_device_because();

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override;
  const cuda::Device& device() const { return *device_; }

 private:
  std::optional<cuda::Device> device_;
};

// Plain causal attention compiled for the device at hand by a worker process, once a program.
const plan::Plan& causal_plan();

// A loaded plan with device memory for its tensors and random values in the inputs.
struct Loaded {
  execute::Executable executable;
  execute::DeviceTensors tensors;
  std::map<std::string, io::HostTensor> inputs;

  // Outputs poisoned with NaN, executed, waited for.
  void run(execute::Binding& binding);
  execute::Arguments arguments(double scale) const;
};
Loaded load_causal();

}  // namespace attn::testing
