#include "runtime/api/rows.h"

#include <fmt/format.h>

#include "runtime/operations/parameters.h"

namespace attn::api {
namespace {

constexpr std::int64_t kMostElements = (std::int64_t{1} << 31) - 1;  // of a row

}  // namespace

Result<ElementType> type_of(const char* name, attn_dtype dtype, Holds holds) {
  switch (dtype) {
    case ATTN_DTYPE_F16: return ElementType{operations::kF16, 2};
    case ATTN_DTYPE_BF16: return ElementType{operations::kBF16, 2};
    case ATTN_DTYPE_F32: return ElementType{operations::kF32, 4};
    default: break;
  }
  if (holds == Holds::pool && dtype == ATTN_DTYPE_E4M3) return ElementType{operations::kE4M3, 1};
  if (holds == Holds::pool && dtype == ATTN_DTYPE_E5M2) return ElementType{operations::kE5M2, 1};
  return {ErrorCode::binding,
          fmt::format("{} has dtype {}, but must have {}", name, attn_dtype_name(dtype),
                      holds == Holds::pool ? "f16, bf16, f32, e4m3 or e5m2" : "f16, bf16 or f32")};
}

Status check_address(const char* name, const void* data, ElementType type) {
  const auto bytes = static_cast<std::uintptr_t>(type.bytes);  // a power of two
  if ((reinterpret_cast<std::uintptr_t>(data) & (bytes - 1)) == 0) return {};
  return Status(ErrorCode::binding, fmt::format("{} is at {}, which is not a multiple of the {} "
                                                "bytes of an element",
                                                name, data, type.bytes));
}

Result<ElementType> check_rows(const char* name, const attn_rows& rows) {
  ATTN_ASSIGN(const ElementType type, type_of(name, rows.dtype));
  ATTN_RETURN_IF_ERROR(check_address(name, rows.data, type));
  const bool fits = rows.heads > 0 && rows.width > 0 && rows.heads <= kMostElements &&
                    rows.width <= kMostElements && rows.heads * rows.width <= kMostElements;
  if (fits) return type;
  return {ErrorCode::binding,
          fmt::format("{} has {} heads of {} elements; a row must have 1 to 2^31 - 1 elements",
                      name, rows.heads, rows.width)};
}

Status check_same(const char* name, const attn_rows& rows, const char* other_name,
                  const attn_rows& other) {
  if (rows.heads == other.heads && rows.width == other.width) return {};
  return Status(ErrorCode::binding,
                fmt::format("{} has {} heads of {} elements, but {} has {} of {}", name, rows.heads,
                            rows.width, other_name, other.heads, other.width));
}

}  // namespace attn::api
