// Describes tensors and params of plans as structures of attn.h. Internal to runtime/api.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "runtime/api/names.h"
#include "runtime/api/sized.h"
#include "runtime/graph/extent.h"
#include "runtime/plan/program.h"

namespace attn::api {

// Bytes from the first element to the end of the last; 0 if there are no elements.
inline std::int64_t bytes_of(const plan::TensorInfo& tensor) {
  const auto last = last_offset(tensor.dims, tensor.strides);
  std::int64_t bytes = 0;
  if (!last) return 0;
  const auto width = static_cast<std::int64_t>(size_of(tensor.dtype));
  if (!__builtin_mul_overflow(*last + 1, width, &bytes)) return bytes;
  return std::numeric_limits<std::int64_t>::max();
}

// The result points into `tensor`.
inline attn_tensor_info info_of(const plan::TensorInfo& tensor) {
  attn_tensor_info info = {};
  info.name = tensor.name.c_str();
  info.role = number_of(tensor.role);
  info.dtype = number_of(tensor.dtype);
  info.is_output = tensor.is_output() ? 1 : 0;
  info.rank = static_cast<std::int32_t>(tensor.dims.size());
  info.dims = tensor.dims.data();
  info.strides = tensor.strides.data();
  info.alignment = tensor.alignment;
  info.addressed_by = tensor.addressed_by.c_str();
  info.bytes = bytes_of(tensor);
  info.bound_strides = tensor.bound_strides ? 1 : 0;
  return info;
}

inline attn_param_info info_of(const plan::ParamInfo& param) {
  attn_param_info info = {};
  info.name = param.name.c_str();
  info.dtype = number_of(param.dtype);
  return info;
}

// Errors: invalid_argument if `index` is not less than `count`; `what` names the items.
inline Status check_index(std::size_t index, std::size_t count, const std::string& what,
                          const std::string& owner) {
  if (index < count) return {};
  return Status(ErrorCode::invalid_argument, "there is no " + what + " " + std::to_string(index) +
                                                 ": " + owner + " has " + std::to_string(count));
}

// Describes items[index]; `what` names the items in errors.
template <typename Items, typename Info>
Status describe(const Items& items, std::size_t index, const char* what, Info* info) {
  ATTN_RETURN_IF_ERROR(check_index(index, items.size(), what, "the plan"));
  return write_sized(info, info_of(items[index]));
}

}  // namespace attn::api
