#include "runtime/api/names.h"

#include "runtime/api/failure.h"
#include "runtime/base/check.h"

namespace attn::api {
namespace {

constexpr ErrorCode kErrorCodes[] = {
#define ATTN_ERROR(name, exit_code, what) ErrorCode::name,
#include "runtime/base/error_codes.def"
#undef ATTN_ERROR
};

constexpr DType kDTypes[] = {
#define ATTN_DTYPE(name, bytes, is_float) DType::name,
#include "runtime/base/dtype.def"
#undef ATTN_DTYPE
};

std::optional<ErrorCode> code_of(attn_status status) {
  for (const ErrorCode code : kErrorCodes) {
    if (status_of(code) == status) return code;
  }
  return std::nullopt;
}

}  // namespace

attn_dtype number_of(DType type) {
  switch (type) {
    case DType::f16: return ATTN_DTYPE_F16;
    case DType::bf16: return ATTN_DTYPE_BF16;
    case DType::f32: return ATTN_DTYPE_F32;
    case DType::f64: return ATTN_DTYPE_F64;
    case DType::i8: return ATTN_DTYPE_I8;
    case DType::u8: return ATTN_DTYPE_U8;
    case DType::i32: return ATTN_DTYPE_I32;
    case DType::i64: return ATTN_DTYPE_I64;
    case DType::boolean: return ATTN_DTYPE_BOOL;
    case DType::e4m3: return ATTN_DTYPE_E4M3;
    case DType::e5m2: return ATTN_DTYPE_E5M2;
    case DType::e8m0: return ATTN_DTYPE_E8M0;
  }
  return 0;
}

std::optional<DType> dtype_of(attn_dtype number) {
  for (const DType type : kDTypes) {
    if (number_of(type) == number) return type;
  }
  return std::nullopt;
}

attn_role number_of(plan::TensorRole role) {
  switch (role) {
    case plan::TensorRole::query: return ATTN_ROLE_QUERY;
    case plan::TensorRole::key: return ATTN_ROLE_KEY;
    case plan::TensorRole::value: return ATTN_ROLE_VALUE;
    case plan::TensorRole::captured: return ATTN_ROLE_CAPTURED;
    case plan::TensorRole::output: return ATTN_ROLE_OUTPUT;
    case plan::TensorRole::stats: return ATTN_ROLE_STATS;
    case plan::TensorRole::control: return ATTN_ROLE_CONTROL;
    case plan::TensorRole::saved: return ATTN_ROLE_SAVED;
    case plan::TensorRole::cotangent: return ATTN_ROLE_COTANGENT;
    case plan::TensorRole::gradient: return ATTN_ROLE_GRADIENT;
    case plan::TensorRole::amax: return ATTN_ROLE_AMAX;
    case plan::TensorRole::internal: break;
  }
  ATTN_CHECK(false, "internal tensors are not bound");
}

std::uint32_t padded_bits(const plan::Shape& shape) {
  std::uint32_t bits = 0;
  for (const plan::Dim dim : shape.padded) bits |= 1U << static_cast<unsigned>(dim);
  return bits;
}

ATTN_API int32_t attn_api_version(void) { return ATTN_API_VERSION; }

ATTN_API const char* attn_version(void) { return ATTN_VERSION; }

// The names are string literals, so they are NUL-terminated.

ATTN_API const char* attn_status_name(attn_status status) {
  if (status == ATTN_STATUS_OK) return "ok";
  if (status == ATTN_STATUS_OUT_OF_MEMORY) return "out_of_memory";
  const auto code = code_of(status);
  return code ? to_string(*code).data() : "unknown";
}

ATTN_API int32_t attn_status_exit_code(attn_status status) {
  constexpr int32_t kSystem = 4;
  if (status == ATTN_STATUS_OK) return 0;
  if (status == ATTN_STATUS_OUT_OF_MEMORY) return kSystem;
  return exit_code(code_of(status).value_or(ErrorCode::internal));
}

ATTN_API const char* attn_dtype_name(attn_dtype dtype) {
  const auto type = dtype_of(dtype);
  return type ? to_string(*type).data() : "unknown";
}

ATTN_API size_t attn_dtype_bytes(attn_dtype dtype) {
  const auto type = dtype_of(dtype);
  return type ? size_of(*type) : 0;
}

ATTN_API const char* attn_role_name(attn_role role) {
  for (int value = 0; value <= static_cast<int>(plan::TensorRole::amax); ++value) {
    const auto candidate = static_cast<plan::TensorRole>(value);
    if (candidate == plan::TensorRole::internal) continue;
    if (number_of(candidate) == role) return plan::to_string(candidate).data();
  }
  return "unknown";
}

}  // namespace attn::api
