#include "runtime/io/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/io/element.h"
#include "runtime/io/rows.h"

namespace attn::io {
namespace {

using Dims = std::vector<std::int64_t>;

Dims place_of(std::int64_t index, const Dims& dims) {
  Dims place(dims.size(), 0);
  for (std::size_t axis = dims.size(); axis-- > 0; index /= dims[axis]) {
    place[axis] = index % dims[axis];
  }
  return place;
}

// Sufficient for all layouts in use: each stride steps over the extent of the smaller ones.
bool plainly_disjoint(const Dims& dims, const Dims& strides) {
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] > 1) axes.emplace_back(strides[axis], dims[axis]);
  }
  std::sort(axes.begin(), axes.end());
  std::int64_t reach = 0;
  for (const auto& [stride, dim] : axes) {
    if (stride <= reach) return false;
    reach += (dim - 1) * stride;
  }
  return true;
}

// Whether elements at one address are equal: those of `bytes`, where the last of them was written.
template <typename Store>
Status check_shared(const Dims& dims, const Dims& strides, std::size_t size,
                    const std::vector<std::byte>& bytes, Store&& store) {
  if (plainly_disjoint(dims, strides)) return {};
  std::vector<std::byte> element(size);
  bool equal = true;
  for_each_element(dims, strides, [&](std::int64_t index, std::int64_t offset) {
    store(static_cast<std::size_t>(index), element.data());
    const std::byte* place = bytes.data() + static_cast<std::size_t>(offset) * size;
    equal = equal && std::memcmp(element.data(), place, size) == 0;
  });
  if (equal) return {};
  return Status(ErrorCode::invalid_argument,
                fmt::format("strides [{}] map two elements of a tensor [{}] to one address, but "
                            "they differ",
                            fmt::join(strides, ", "), fmt::join(dims, ", ")));
}

Error does_not_fit(double value, std::int64_t index, const Dims& dims, DType type) {
  const bool whole = std::trunc(value) == value && !std::isinf(value);
  return Error{ErrorCode::invalid_argument,
               fmt::format("value {} at [{}] {} {}", value, fmt::join(place_of(index, dims), ", "),
                           whole ? "is out of range for" : "is not an integer, as required for",
                           to_string(type))};
}

// Bytes with `count` elements where `store(i, place)` writes them.
template <typename Store>
Result<std::vector<std::byte>> placed(std::size_t count, const Dims& dims, const Dims& strides,
                                      DType type, std::byte gap, Store&& store) {
  ATTN_ASSIGN(const std::int64_t elements, storage_elements(dims, strides));
  if (element_count(dims) != static_cast<std::int64_t>(count)) {
    return {ErrorCode::invalid_argument,
            fmt::format("{} values for a tensor [{}]", count, fmt::join(dims, ", "))};
  }
  const std::size_t size = size_of(type);
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * size, gap);
  for_each_element(dims, strides, [&](std::int64_t index, std::int64_t offset) {
    store(static_cast<std::size_t>(index), bytes.data() + static_cast<std::size_t>(offset) * size);
  });
  ATTN_RETURN_IF_ERROR(check_shared(dims, strides, size, bytes, store));
  return bytes;
}

}  // namespace

Result<std::int64_t> storage_elements(const Dims& dims, const Dims& strides) {
  if (dims.size() != strides.size()) {
    return {ErrorCode::invalid_argument,
            fmt::format("{} dims but {} strides", dims.size(), strides.size())};
  }
  std::int64_t last = 0;
  bool empty = false;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] < 0 || strides[axis] < 0) {
      return {ErrorCode::invalid_argument,
              fmt::format("negative dims or strides: [{}] by [{}]", fmt::join(dims, ", "),
                          fmt::join(strides, ", "))};
    }
    empty = empty || dims[axis] == 0;
    std::int64_t reach = 0;
    if (dims[axis] > 0 && (__builtin_mul_overflow(dims[axis] - 1, strides[axis], &reach) ||
                           __builtin_add_overflow(last, reach, &last))) {
      return {ErrorCode::invalid_argument, "the size of a tensor exceeds 2^63 - 1 elements"};
    }
  }
  std::int64_t count = 1;
  for (std::int64_t dim : dims) {
    if (!empty && __builtin_mul_overflow(count, dim, &count)) {
      return {ErrorCode::invalid_argument, "the size of a tensor exceeds 2^63 - 1 elements"};
    }
  }
  return empty ? 0 : last + 1;
}

std::vector<std::int64_t> dense_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t axis = dims.size(); axis-- > 1;) {
    strides[axis - 1] = strides[axis] * std::max<std::int64_t>(dims[axis], 1);
  }
  return strides;
}

Result<std::vector<std::byte>> pack(std::span<const double> values, const Dims& dims,
                                    const Dims& strides, DType type, std::byte gap) {
  for (std::size_t i = 0; i < values.size() && !is_float(type); ++i) {
    if (!fits(type, values[i])) {
      return does_not_fit(values[i], static_cast<std::int64_t>(i), dims, type);
    }
  }
  return placed(values.size(), dims, strides, type, gap,
                [&](std::size_t i, std::byte* place) { store(type, values[i], place); });
}

Result<std::vector<std::byte>> pack(const HostTensor& tensor, const Dims& dims, const Dims& strides,
                                    DType type) {
  if (tensor.wide.empty() || type != DType::i64) return pack(tensor.values, dims, strides, type);
  return placed(tensor.wide.size(), dims, strides, type, {}, [&](std::size_t i, std::byte* place) {
    std::memcpy(place, &tensor.wide[i], sizeof(std::int64_t));
  });
}

namespace {

HostTensor unpack_wide(std::span<const std::byte> bytes, const Dims& dims, const Dims& strides) {
  std::vector<std::int64_t> elements(static_cast<std::size_t>(element_count(dims)));
  for_each_element(dims, strides, [&](std::int64_t index, std::int64_t offset) {
    std::memcpy(&elements[static_cast<std::size_t>(index)],
                bytes.data() + static_cast<std::size_t>(offset) * sizeof(std::int64_t),
                sizeof(std::int64_t));
  });
  return tensor_of_wide(dims, std::move(elements));
}

}  // namespace

Result<HostTensor> unpack(std::span<const std::byte> bytes, const Dims& dims, const Dims& strides,
                          DType type) {
  ATTN_ASSIGN(const std::int64_t elements, storage_elements(dims, strides));
  const std::size_t size = size_of(type);
  if (bytes.size() / size < static_cast<std::size_t>(elements)) {
    return {ErrorCode::invalid_argument,
            fmt::format("{} bytes are too few for a {} tensor [{}] with strides [{}]", bytes.size(),
                        to_string(type), fmt::join(dims, ", "), fmt::join(strides, ", "))};
  }
  if (type == DType::i64) return unpack_wide(bytes, dims, strides);
  HostTensor tensor{type, dims, {}};
  tensor.values.resize(static_cast<std::size_t>(element_count(dims)));
  for_each_element(dims, strides, [&](std::int64_t index, std::int64_t offset) {
    tensor.values[static_cast<std::size_t>(index)] =
        load(type, bytes.data() + static_cast<std::size_t>(offset) * size);
  });
  return tensor;
}

}  // namespace attn::io
