// Arguments: tensors and params by name, in any order. Part of attn.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "tensor.hpp"

namespace attn {
inline namespace v2 {

// Device memory owned by the caller. Empty strides: dense row-major.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims = {};
  std::vector<std::int64_t> strides = {};
};

// Tensors and params by name, in any order; setting a name again replaces its value. The first
// invalid value, such as a DLPack tensor in host memory, becomes error(), which bind returns.
class Arguments {
 public:
  Arguments() {
    attn_arguments* made = nullptr;
    keep(call_(attn_arguments_create, &made));
    handle_.reset(made);
  }

  // Sets a tensor. The view is copied; the memory stays the caller's.
  Arguments& tensor(const std::string& name, const TensorView& view) {
    attn_tensor plain = {};
    plain.size = sizeof plain;
    plain.name = name.c_str();
    plain.data = view.data;
    plain.dtype = static_cast<attn_dtype>(view.dtype);
    plain.rank = static_cast<std::int32_t>(view.dims.size());
    plain.dims = view.dims.data();
    if (view.strides.empty()) return keep(call_(attn_arguments_tensor, handle(), &plain));
    if (view.strides.size() != view.dims.size()) {
      return keep(Error{Code::binding,
                        "tensor '" + name + "' has different numbers of dims and strides",
                        {},
                        {}});
    }
    plain.strides = view.strides.data();
    return keep(call_(attn_arguments_tensor, handle(), &plain));
  }

  // A DLTensor of any version of dlpack.h. Its fields are copied; its owner keeps the memory alive.
  template <typename DlTensor, typename = decltype(std::declval<const DlTensor&>().byte_offset)>
  Arguments& tensor(const std::string& name, const DlTensor& dl_tensor) {
    const void* address = &dl_tensor;
    return keep(call_(attn_arguments_dlpack, handle(), name.c_str(), address));
  }

  // Sets only the address. A tensor that was not set before gets the plan's dtype, dims and
  // strides.
  Arguments& address(const std::string& name, void* data) {
    return keep(call_(attn_arguments_address, handle(), name.c_str(), data));
  }

  // Sets a param: an f32, or an i32.
  Arguments& param(const std::string& name, double value) { return param(name, DType::f32, value); }
  Arguments& param(const std::string& name, std::int32_t value) {
    return param(name, DType::i32, static_cast<double>(value));
  }
  // Sets a param; `dtype` is f32 or i32.
  Arguments& param(const std::string& name, DType dtype, double value) {
    const auto plain = static_cast<attn_dtype>(dtype);
    return keep(call_(attn_arguments_param, handle(), name.c_str(), plain, value));
  }

  const std::optional<Error>& error() const { return error_; }  // the first error
  attn_arguments* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }

 private:
  Arguments& keep(const Status& status) {
    if (!status.ok() && !error_) error_ = status.error();
    return *this;
  }

  detail::Caller call_;
  detail::Owned<attn_arguments, attn_arguments_destroy> handle_;
  std::optional<Error> error_;
};

}  // namespace v2
}  // namespace attn
