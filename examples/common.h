// Helpers of the C++ examples: memory for the tensors of a plan, and exit codes. An application can
// use its own tensors, from any allocator; attn only needs their device addresses.
#pragma once

#include <attn.hpp>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace examples {

using Bytes = std::vector<std::byte>;

inline std::size_t element_count(const attn::TensorInfo& info) {
  std::size_t count = 1;
  for (const std::int64_t dim : info.dims) count *= static_cast<std::size_t>(dim);
  return count;
}

// Elements from the first to the last in memory, gaps included.
inline std::size_t storage_elements(const attn::TensorInfo& info) {
  if (element_count(info) == 0) return 0;
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < info.dims.size(); ++axis) {
    last += (info.dims[axis] - 1) * info.strides[axis];
  }
  return static_cast<std::size_t>(last) + 1;
}

// Calls function(offset) for every element in logical order, the last dim fastest.
template <typename Function>
void for_each_element(const attn::TensorInfo& info, const Function& function) {
  std::vector<std::int64_t> index(info.dims.size(), 0);
  std::int64_t offset = 0;
  for (std::size_t left = element_count(info); left > 0; --left) {
    function(static_cast<std::size_t>(offset));
    for (std::size_t axis = info.dims.size(); axis-- > 0;) {
      offset += info.strides[axis];
      if (++index[axis] < info.dims[axis]) break;
      offset -= info.strides[axis] * index[axis];
      index[axis] = 0;
    }
  }
}

struct Tensor {
  attn::TensorInfo info;
  attn::Memory memory;
};

// Copies values in logical order to device memory.
inline attn::Status upload(Tensor& tensor, const std::vector<float>& values) {
  std::vector<float> stored(storage_elements(tensor.info), 0.0f);
  auto value = values.begin();
  for_each_element(tensor.info, [&](std::size_t offset) { stored[offset] = *value++; });
  Bytes bytes(stored.size() * attn::size_of(tensor.info.dtype));
  ATTN_TRY(attn::from_f32(tensor.info.dtype, stored.data(), stored.size(), bytes.data()));
  return tensor.memory.upload(bytes.data(), bytes.size());
}

// Returns the raw bytes in memory order.
inline attn::Result<Bytes> download_bytes(const Tensor& tensor) {
  Bytes bytes(storage_elements(tensor.info) * attn::size_of(tensor.info.dtype));
  ATTN_TRY(tensor.memory.download(bytes.data(), bytes.size()));
  return bytes;
}

// Returns the values in logical order.
inline attn::Result<std::vector<float>> download(const Tensor& tensor) {
  std::vector<float> stored(storage_elements(tensor.info));
  ATTN_TRY_ASSIGN(const Bytes bytes, download_bytes(tensor));
  ATTN_TRY(attn::to_f32(tensor.info.dtype, bytes.data(), stored.size(), stored.data()));
  std::vector<float> values;
  for_each_element(tensor.info, [&](std::size_t offset) { values.push_back(stored[offset]); });
  return values;
}

inline std::vector<float> random_values(const attn::TensorInfo& info, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(element_count(info));
  for (float& value : values) value = normal(generator);
  return values;
}

// Allocates a tensor: random values for floating-point inputs, otherwise 0.
inline attn::Result<Tensor> make_tensor(const attn::Runtime& runtime, const attn::TensorInfo& info,
                                        unsigned seed = 1) {
  const std::size_t bytes = storage_elements(info) * attn::size_of(info.dtype);
  ATTN_TRY_ASSIGN(auto memory, attn::Memory::allocate(runtime, bytes));
  Tensor tensor{info, std::move(memory)};
  const bool random = attn::is_float(info.dtype) && !info.is_output;
  ATTN_TRY(upload(
      tensor, random ? random_values(info, seed) : std::vector<float>(element_count(info), 0.0f)));
  return tensor;
}

inline attn::TensorView view_of(const Tensor& tensor) {
  return {tensor.memory.data(), tensor.info.dtype, tensor.info.dims, tensor.info.strides};
}

// Prints the error, if any, and returns main's exit code.
inline int end_with(const attn::Status& status) {
  if (status.ok()) return 0;
  const attn::Error& error = status.error();
  std::fprintf(stderr, "%s: %s\n", attn::to_string(error.code), error.to_text().c_str());
  return attn::exit_code(error.code);
}

inline int usage(const char* text) {
  std::fprintf(stderr, "usage: %s\n", text);
  return 2;
}

}  // namespace examples
