// Device memory for all tensors of a program, filled from and read back as host values. For tools,
// tests and benchmarks; applications bind their own tensors.
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

// Every tensor has its own buffer with the plan's strides. For one thread at a time. Functions that
// take a name return invalid_argument if the program has no such tensor.
class DeviceTensors {
 public:
  // Uninitialized. Errors: cuda.
  static Result<DeviceTensors> allocate(const cuda::Device& device, const plan::Program& program);

  // Converts to the tensor's dtype (floats round) and layout; sets bytes between elements to 0.
  // Errors: invalid_argument for different dims or a value that does not fit, cuda.
  Status upload(const std::string& name, const io::HostTensor& values);
  // Copies raw bytes to the start of the buffer. Errors: invalid_argument if it is smaller, cuda.
  Status upload_bytes(const std::string& name, std::span<const std::byte> bytes);
  // Copies a tensor to the host, in logical order, with its dtype. Does not wait: synchronize the
  // stream first.
  Result<io::HostTensor> download(const std::string& name) const;
  // The raw buffer, including bytes between elements.
  Result<std::vector<std::byte>> download_bytes(const std::string& name) const;

  // Sets every byte to `byte`; 0xff makes every float a NaN.
  Status fill(const std::string& name, std::uint8_t byte);
  // Standard normal values for floats, and in rows of a format, 32 times as large for i8, repeating
  // after about a million;
  // cheap at any size, meant for timing. Errors: invalid_argument for a tensor of other integers.
  Status fill_random(const std::string& name, std::uint64_t seed);

  // Views of all tensors; the caller adds the scalars. Valid while this object lives.
  Arguments arguments() const;

 private:
  struct Entry {
    plan::TensorInfo info;
    cuda::DeviceBuffer buffer;
  };
  Result<const Entry*> find(const std::string& name) const;
  Result<Entry*> find(const std::string& name);
  static Status fill_rows(Entry& entry, std::uint64_t seed);
  static Status fill_with(Entry& entry, std::span<const std::byte> tile);

  std::map<std::string, Entry> entries_;
};

}  // namespace attn::execute
