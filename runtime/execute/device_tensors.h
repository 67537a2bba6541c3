// Device memory for all tensors of a program, filled from and read back as host values: what tools,
// tests and benchmarks bind. Applications that have their tensors on the device need none of this.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "runtime/base/status.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/execute/arguments.h"
#include "runtime/io/host_tensor.h"
#include "runtime/plan/program.h"

namespace attn::execute {

// Every tensor has a buffer of its own with the plan's strides. One thread at a time. Functions
// that take a name return invalid_argument for one that the program has not.
class DeviceTensors {
 public:
  // Contents undefined. Errors: cuda.
  static Result<DeviceTensors> allocate(const cuda::Device& device, const plan::Program& program);

  // Converts to the tensor's dtype (floats round) and layout; bytes between elements become 0.
  // Errors: invalid_argument for other dims or a value that does not fit, cuda.
  Status upload(const std::string& name, const io::HostTensor& values);
  // The buffer as it is, from its start. Errors: invalid_argument when it is smaller, cuda.
  Status upload_bytes(const std::string& name, std::span<const std::byte> bytes);
  // In logical order, with the tensor's dtype. Waits for nothing: synchronise the stream first.
  Result<io::HostTensor> download(const std::string& name) const;
  // The buffer as it is, bytes between elements included.
  Result<std::vector<std::byte>> download_bytes(const std::string& name) const;

  // Sets every byte; 0xff makes every float a NaN.
  Status fill(const std::string& name, std::uint8_t byte);
  // Standard normal values for floats, repeating after about a million; cheap at any size, meant
  // for timing. Errors: invalid_argument for an integer tensor.
  Status fill_random(const std::string& name, std::uint64_t seed);

  // Views of all the tensors, to which the caller adds the scalars. Valid while this object lives.
  Arguments arguments() const;

 private:
  struct Entry {
    plan::TensorInfo info;
    cuda::DeviceBuffer buffer;
  };
  Result<const Entry*> find(const std::string& name) const;
  Result<Entry*> find(const std::string& name);

  std::map<std::string, Entry> entries_;
};

}  // namespace attn::execute
