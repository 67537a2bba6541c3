// What tensors and params are: types, roles, dimensions. Part of attn.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "handle.hpp"
#include "tensor.h"

namespace attn {
inline namespace v2 {

// Element types.
enum class DType : std::int32_t {
  f16 = ATTN_DTYPE_F16,
  bf16 = ATTN_DTYPE_BF16,
  f32 = ATTN_DTYPE_F32,
  f64 = ATTN_DTYPE_F64,
  i8 = ATTN_DTYPE_I8,
  u8 = ATTN_DTYPE_U8,
  i32 = ATTN_DTYPE_I32,
  i64 = ATTN_DTYPE_I64,
  boolean = ATTN_DTYPE_BOOL,
  e4m3 = ATTN_DTYPE_E4M3,
  e5m2 = ATTN_DTYPE_E5M2,
  e8m0 = ATTN_DTYPE_E8M0
};
// Its name, such as "bf16".
inline const char* to_string(DType type) { return attn_dtype_name(static_cast<attn_dtype>(type)); }
// Bytes per element.
inline std::size_t size_of(DType type) { return attn_dtype_bytes(static_cast<attn_dtype>(type)); }
// Whether the type is one of floats; the scales of blocks (e8m0) are.
inline bool is_float(DType type) {
  return type == DType::f16 || type == DType::bf16 || type == DType::f32 || type == DType::f64 ||
         type == DType::e4m3 || type == DType::e5m2 || type == DType::e8m0;
}

// What a tensor is for.
enum class Role : std::int32_t {
  query = ATTN_ROLE_QUERY,
  key = ATTN_ROLE_KEY,
  value = ATTN_ROLE_VALUE,
  captured = ATTN_ROLE_CAPTURED,
  output = ATTN_ROLE_OUTPUT,
  stats = ATTN_ROLE_STATS,
  control = ATTN_ROLE_CONTROL,
  saved = ATTN_ROLE_SAVED,
  cotangent = ATTN_ROLE_COTANGENT,
  gradient = ATTN_ROLE_GRADIENT,
  amax = ATTN_ROLE_AMAX
};
// Its name, such as "query".
inline const char* to_string(Role role) { return attn_role_name(static_cast<attn_role>(role)); }

// Dimensions of an attention.
enum class Dim : std::int32_t {
  B = ATTN_DIM_B,
  Hq = ATTN_DIM_HQ,
  Hkv = ATTN_DIM_HKV,
  Sq = ATTN_DIM_SQ,
  Skv = ATTN_DIM_SKV,
  Dqk = ATTN_DIM_DQK,
  Dv = ATTN_DIM_DV
};
// Its name, such as "Hkv".
inline const char* to_string(Dim dim) { return attn_dim_name(static_cast<attn_dim>(dim)); }

// A dimension's size, in elements.
struct Size {
  Dim dim;
  std::int64_t size;
};

// The sizes a plan is for.
class Shape {
 public:
  Shape() = default;
  explicit Shape(const attn_shape& plain) : plain_(plain) {}
  std::int64_t operator[](Dim dim) const { return plain_.sizes[static_cast<std::size_t>(dim)]; }
  // Whether the plan also serves smaller sizes of `dim`.
  bool pads(Dim dim) const { return (plain_.padded >> static_cast<unsigned>(dim) & 1U) != 0; }

  const attn_shape& plain() const { return plain_; }  // as in attn.h

 private:
  attn_shape plain_ = {};
};

// Dims in logical order, strides in elements.
struct TensorInfo {
  std::string name;
  Role role = Role::captured;
  DType dtype = DType::f32;
  bool is_output = false;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  std::int64_t alignment = 0;
  std::string addressed_by;
  std::int64_t bytes = 0;  // to allocate
  bool bound_strides = false;
};

// A scalar to bind: f32 or i32.
struct ParamInfo {
  std::string name;
  DType dtype = DType::f32;
};

namespace detail {

inline TensorInfo tensor_info(const attn_tensor_info& info) {
  return TensorInfo{info.name,
                    static_cast<Role>(info.role),
                    static_cast<DType>(info.dtype),
                    info.is_output != 0,
                    std::vector<std::int64_t>(info.dims, info.dims + info.rank),
                    std::vector<std::int64_t>(info.strides, info.strides + info.rank),
                    info.alignment,
                    info.addressed_by,
                    info.bytes,
                    info.bound_strides != 0};
}
inline ParamInfo param_info(const attn_param_info& info) {
  return ParamInfo{info.name, static_cast<DType>(info.dtype)};
}

// Returns wrap(info) for each i < `count`, with `info` read by call(function, owner .., i, &info).
template <typename Info, typename Wrap, typename Function, typename... Owner>
auto read_list(const Wrap& wrap, std::size_t count, const Function& function, Owner... owner)
    -> Result<std::vector<decltype(wrap(std::declval<const Info&>()))>> {
  const Caller call;
  std::vector<decltype(wrap(std::declval<const Info&>()))> list;
  for (std::size_t i = 0; i < count; ++i) {
    Info info = {};
    info.size = sizeof info;
    ATTN_TRY(call(function, owner..., i, &info));
    list.push_back(wrap(info));
  }
  return list;
}

}  // namespace detail

}  // namespace v2
}  // namespace attn
