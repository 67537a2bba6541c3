#include "runtime/api/dlpack.h"

#include <dlpack/dlpack.h>
#include <fmt/format.h>

#include <utility>

#include "runtime/io/layout.h"

namespace attn::api {
namespace {

constexpr int kBool = 6;  // kDLBool, which headers before DLPack 0.8 lack
// kDLFloat8_e4m3fn, kDLFloat8_e5m2 and kDLFloat8_e8m0fnu, which headers before DLPack 1.1 lack.
constexpr int kE4m3 = 10;
constexpr int kE5m2 = 12;
constexpr int kE8m0 = 14;
constexpr int kMostDims = 64;

struct Kind {
  int code;
  int bits;
  DType type;
};
constexpr Kind kKinds[] = {
    {kDLFloat, 16, DType::f16}, {kDLBfloat, 16, DType::bf16}, {kDLFloat, 32, DType::f32},
    {kDLFloat, 64, DType::f64}, {kDLInt, 8, DType::i8},       {kDLUInt, 8, DType::u8},
    {kDLInt, 32, DType::i32},   {kDLInt, 64, DType::i64},     {kBool, 8, DType::boolean},
    {kE4m3, 8, DType::e4m3},    {kE5m2, 8, DType::e5m2},      {kE8m0, 8, DType::e8m0},
};

Error wrong(const std::string& name, std::string_view what) {
  return Error{ErrorCode::binding, fmt::format("tensor '{}' {}", name, what)};
}

Result<DType> dlpack_dtype(const std::string& name, DLDataType given) {
  if (given.lanes != 1) {
    return wrong(name,
                 fmt::format("has vector elements of {} lanes (DLPack), not scalars", given.lanes));
  }
  for (const Kind& kind : kKinds) {
    if (kind.code == given.code && kind.bits == given.bits) return kind.type;
  }
  return wrong(name, fmt::format("has DLPack type code {} and {} bits, which no plan supports",
                                 given.code, given.bits));
}

Result<std::optional<int>> device_of(const std::string& name, DLDevice given) {
  if (given.device_type == kDLCUDA) return std::optional<int>(given.device_id);
  if (given.device_type == kDLCUDAManaged) return std::optional<int>();
  return wrong(name, fmt::format("is on DLPack device type {}, not in CUDA memory",
                                 static_cast<int>(given.device_type)));
}

Status check_form(const std::string& name, const DLTensor& tensor) {
  if (tensor.ndim < 0 || tensor.ndim > kMostDims) {
    return wrong(name, fmt::format("has {} dims", tensor.ndim));
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr) return wrong(name, "has no shape");
  for (int axis = 0; axis < tensor.ndim; ++axis) {
    if (tensor.shape[axis] < 0) return wrong(name, "has a negative dim");
  }
  return {};
}

}  // namespace

Result<DlTensor> read_dlpack(const std::string& name, const void* dl_tensor) {
  const DLTensor& given = *static_cast<const DLTensor*>(dl_tensor);
  ATTN_RETURN_IF_ERROR(check_form(name, given));
  DlTensor tensor;
  ATTN_ASSIGN(tensor.device, device_of(name, given.device));
  execute::TensorView& view = tensor.view;
  ATTN_ASSIGN(view.dtype, dlpack_dtype(name, given.dtype));
  if (given.data != nullptr) view.data = static_cast<std::byte*>(given.data) + given.byte_offset;
  view.dims.assign(given.shape, given.shape + given.ndim);
  if (given.strides != nullptr) view.strides.assign(given.strides, given.strides + given.ndim);
  if (given.strides == nullptr) view.strides = io::dense_strides(view.dims);
  return tensor;
}

}  // namespace attn::api
