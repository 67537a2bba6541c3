#include "runtime/execute/arguments.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "runtime/api/dlpack.h"
#include "runtime/api/failure.h"
#include "runtime/api/handles.h"
#include "runtime/api/names.h"
#include "runtime/api/sized.h"
#include "runtime/io/layout.h"

namespace attn::api {
namespace {

Result<DType> checked_dtype(const char* name, attn_dtype number) {
  const auto type = dtype_of(number);
  if (type) return *type;
  return {ErrorCode::binding,
          fmt::format("the dtype of '{}' is {}, which is not an attn_dtype", name, number)};
}

Result<execute::TensorView> view_of(const attn_tensor& tensor) {
  if (tensor.rank < 0 || (tensor.rank > 0 && tensor.dims == nullptr)) {
    return {ErrorCode::binding, fmt::format("tensor '{}' has {} dims, which are {}", tensor.name,
                                            tensor.rank, tensor.rank < 0 ? "negative" : "NULL")};
  }
  execute::TensorView view;
  view.data = tensor.data;
  ATTN_ASSIGN(view.dtype, checked_dtype(tensor.name, tensor.dtype));
  view.dims.assign(tensor.dims, tensor.dims + tensor.rank);
  if (tensor.strides != nullptr) {
    view.strides.assign(tensor.strides, tensor.strides + tensor.rank);
  } else {
    view.strides = io::dense_strides(view.dims);
  }
  return view;
}

}  // namespace

ATTN_API attn_status attn_arguments_create(attn_arguments** arguments, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{arguments, "the output pointer for the arguments"}}));
    *arguments = std::make_unique<attn_arguments>().release();
    return {};
  });
}

ATTN_API void attn_arguments_destroy(attn_arguments* arguments) { delete arguments; }

ATTN_API attn_status attn_arguments_tensor(attn_arguments* arguments, const attn_tensor* tensor,
                                           attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{arguments, "the arguments"}, {tensor, "the tensor"}}));
    ATTN_ASSIGN(const attn_tensor read, read_sized(tensor));
    ATTN_RETURN_IF_ERROR(check_given({{read.name, "the tensor's name"}}));
    ATTN_ASSIGN(execute::TensorView view, view_of(read));
    arguments->devices.erase(read.name);
    arguments->arguments.tensor(read.name, std::move(view));
    return {};
  });
}

ATTN_API attn_status attn_arguments_dlpack(attn_arguments* arguments, const char* name,
                                           const void* dl_tensor, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given(
        {{arguments, "the arguments"}, {name, "the tensor's name"}, {dl_tensor, "the DLTensor"}}));
    ATTN_ASSIGN(DlTensor tensor, read_dlpack(name, dl_tensor));
    arguments->devices.erase(name);
    if (tensor.device) arguments->devices[name] = *tensor.device;
    arguments->arguments.tensor(name, std::move(tensor.view));
    return {};
  });
}

ATTN_API attn_status attn_arguments_address(attn_arguments* arguments, const char* name, void* data,
                                            attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{arguments, "the arguments"}, {name, "the tensor's name"}}));
    arguments->devices.erase(name);
    arguments->arguments.address(name, data);
    return {};
  });
}

ATTN_API attn_status attn_arguments_param(attn_arguments* arguments, const char* name,
                                          attn_dtype dtype, double value, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{arguments, "the arguments"}, {name, "the param's name"}}));
    ATTN_ASSIGN(const DType type, checked_dtype(name, dtype));
    arguments->arguments.scalar(name, type, value);
    return {};
  });
}

}  // namespace attn::api
