#include "runtime/execute/device_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/base/row_format.h"
#include "runtime/io/layout.h"
#include "runtime/io/random.h"

namespace attn::execute {

Result<DeviceTensors> DeviceTensors::allocate(const cuda::Device& device,
                                              const plan::Program& program) {
  DeviceTensors tensors;
  for (const plan::TensorInfo& info : program.tensors) {
    ATTN_ASSIGN(const std::int64_t elements, io::storage_elements(info.dims, info.strides));
    const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(info.dtype);
    ATTN_ASSIGN(cuda::DeviceBuffer buffer, cuda::DeviceBuffer::allocate(device, bytes));
    tensors.entries_.emplace(info.name, Entry{info, std::move(buffer)});
  }
  return tensors;
}

Result<const DeviceTensors::Entry*> DeviceTensors::find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found != entries_.end()) return &found->second;
  return {ErrorCode::invalid_argument, fmt::format("the plan has no tensor '{}'", name)};
}

Result<DeviceTensors::Entry*> DeviceTensors::find(const std::string& name) {
  ATTN_ASSIGN(const Entry* entry, std::as_const(*this).find(name));
  return const_cast<Entry*>(entry);
}

Status DeviceTensors::upload(const std::string& name, const io::HostTensor& values) {
  ATTN_ASSIGN(Entry * entry, find(name));
  const plan::TensorInfo& info = entry->info;
  if (values.dims != info.dims) {
    return Status(ErrorCode::invalid_argument,
                  fmt::format("values of dims [{}] given for tensor '{}' of dims [{}]",
                              fmt::join(values.dims, ", "), name, fmt::join(info.dims, ", ")));
  }
  Result<std::vector<std::byte>> bytes = io::pack(values, info.dims, info.strides, info.dtype);
  if (!bytes.ok()) {
    Error error = bytes.error();
    error.message = fmt::format("tensor '{}': {}", name, error.message);
    return error;
  }
  return entry->buffer.upload(*bytes);
}

Status DeviceTensors::upload_bytes(const std::string& name, std::span<const std::byte> bytes) {
  ATTN_ASSIGN(Entry * entry, find(name));
  if (bytes.size() > entry->buffer.size()) {
    return Status(ErrorCode::invalid_argument,
                  fmt::format("{} bytes given for tensor '{}' of {}", bytes.size(), name,
                              entry->buffer.size()));
  }
  return entry->buffer.upload(bytes);
}

Result<std::vector<std::byte>> DeviceTensors::download_bytes(const std::string& name) const {
  ATTN_ASSIGN(const Entry* entry, find(name));
  std::vector<std::byte> bytes(entry->buffer.size());
  ATTN_RETURN_IF_ERROR(entry->buffer.download(bytes));
  return bytes;
}

Result<io::HostTensor> DeviceTensors::download(const std::string& name) const {
  ATTN_ASSIGN(const Entry* entry, find(name));
  ATTN_ASSIGN(const std::vector<std::byte> bytes, download_bytes(name));
  return io::unpack(bytes, entry->info.dims, entry->info.strides, entry->info.dtype);
}

Status DeviceTensors::fill(const std::string& name, std::uint8_t byte) {
  ATTN_ASSIGN(Entry * entry, find(name));
  return entry->buffer.fill(byte);
}

Status DeviceTensors::fill_random(const std::string& name, std::uint64_t seed) {
  constexpr std::int64_t kPeriod = 1000003;  // odd, so that power-of-two rows differ
  ATTN_ASSIGN(Entry * entry, find(name));
  const DType dtype = entry->info.dtype;
  if (!entry->info.rows.empty()) return fill_rows(*entry, seed);
  if (!is_float(dtype) && dtype != DType::i8) {
    return Status(ErrorCode::invalid_argument,
                  fmt::format("tensor '{}' is {}; only tensors of floats and i8 have random values",
                              name, to_string(dtype)));
  }
  const std::int64_t count =
      std::min(kPeriod, static_cast<std::int64_t>(entry->buffer.size() / size_of(dtype)));
  constexpr double kDeviation = 32, kMost = 127;  // of integers
  std::vector<double> values = io::normal_values(seed, count);
  for (double& value : values) {
    if (is_float(dtype)) break;
    value = std::clamp(std::round(kDeviation * value), -kMost, kMost);
  }
  ATTN_ASSIGN(const std::vector<std::byte> tile, io::pack(values, {count}, {1}, dtype));
  return fill_with(*entry, tile);
}

Status DeviceTensors::fill_rows(Entry& entry, std::uint64_t seed) {
  constexpr std::int64_t kRows = 1999;  // repeated
  const RowFormat format = *parse_row_format(entry.info.rows);
  const auto columns = static_cast<std::size_t>(info(format).columns()),
             bytes = static_cast<std::size_t>(info(format).bytes());
  const std::vector<double> values = io::normal_values(seed, kRows * info(format).columns());
  std::vector<std::byte> tile(kRows * bytes);
  for (std::size_t row = 0; row < kRows; ++row)
    store_row(format, std::span(values).subspan(row * columns, columns), &tile[row * bytes]);
  return fill_with(entry, tile);
}

// The tile, repeated.
Status DeviceTensors::fill_with(Entry& entry, std::span<const std::byte> tile) {
  for (std::size_t offset = 0; offset < entry.buffer.size(); offset += tile.size()) {
    const std::size_t bytes = std::min(tile.size(), entry.buffer.size() - offset);
    ATTN_RETURN_IF_ERROR(entry.buffer.upload({tile.data(), bytes}, offset));
  }
  return {};
}

Arguments DeviceTensors::arguments() const {
  Arguments arguments;
  for (const auto& [name, entry] : entries_) {
    arguments.tensor(name,
                     {entry.buffer.data(), entry.info.dtype, entry.info.dims, entry.info.strides});
  }
  return arguments;
}

}  // namespace attn::execute
