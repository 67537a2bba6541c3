#include "frame.h"

#include <algorithm>
#include <array>
#include <utility>

namespace attn::xla {
namespace {

ffi::Code code_of(attn_status status) {
  switch (status) {
    case ATTN_STATUS_INVALID_ARGUMENT:
    case ATTN_STATUS_BINDING:
    case ATTN_STATUS_INVALID_SPEC: return ffi::Code::invalid_argument;
    case ATTN_STATUS_UNSUPPORTED: return ffi::Code::unimplemented;
    case ATTN_STATUS_CUDA:
    case ATTN_STATUS_CUDNN: return ffi::Code::unavailable;
    case ATTN_STATUS_PLAN_VERSION:
    case ATTN_STATUS_PLAN_DEVICE:
    case ATTN_STATUS_PLAN_NEWER: return ffi::Code::failed_precondition;
    case ATTN_STATUS_PLAN_TRUNCATED:
    case ATTN_STATUS_PLAN_DAMAGED:
    case ATTN_STATUS_PLAN_FOREIGN: return ffi::Code::data_loss;
    case ATTN_STATUS_OUT_OF_MEMORY: return ffi::Code::resource_exhausted;
    default: return ffi::Code::internal;
  }
}

struct Named {
  attn_dtype dtype;
  ffi::Type type;
};
constexpr std::array kTypes = {
    Named{ATTN_DTYPE_F16, ffi::Type::f16},     Named{ATTN_DTYPE_BF16, ffi::Type::bf16},
    Named{ATTN_DTYPE_F32, ffi::Type::f32},     Named{ATTN_DTYPE_F64, ffi::Type::f64},
    Named{ATTN_DTYPE_I8, ffi::Type::s8},       Named{ATTN_DTYPE_U8, ffi::Type::u8},
    Named{ATTN_DTYPE_I32, ffi::Type::s32},     Named{ATTN_DTYPE_I64, ffi::Type::s64},
    Named{ATTN_DTYPE_BOOL, ffi::Type::pred},   Named{ATTN_DTYPE_E4M3, ffi::Type::f8e4m3fn},
    Named{ATTN_DTYPE_E5M2, ffi::Type::f8e5m2}, Named{ATTN_DTYPE_E8M0, ffi::Type::f8e8m0fnu}};

std::string_view view(const ffi::Bytes& bytes) { return {bytes.begin, bytes.size}; }

// The value of an attribute of this kind, or null.
const void* attribute(const ffi::Call& call, std::string_view name, ffi::Kind kind) {
  const ffi::Attributes& all = call.attributes;
  for (std::int64_t i = 0; i < all.count; ++i) {
    if (view(*all.names[i]) == name) return all.kinds[i] == kind ? all.values[i] : nullptr;
  }
  return nullptr;
}

}  // namespace

ffi::Error* failure(const ffi::Call& call, attn_status status, const std::string& text) {
  const std::string message = std::string("[attn ") + attn_status_name(status) + "] " + text;
  ffi::CreateError arguments{sizeof arguments, nullptr, message.c_str(), code_of(status)};
  return call.api->create_error(&arguments);
}

ffi::Error* failure(const ffi::Call& call, attn_status status, const attn_error* error) {
  return failure(call, status, std::string(attn_error_text(error)));
}

bool answers_metadata(const ffi::Call& call) {
  if (call.extensions == nullptr || call.extensions->type != ffi::kMetadata) return false;
  ffi::Metadata& metadata = *reinterpret_cast<ffi::MetadataExtension*>(call.extensions)->metadata;
  metadata.version.major = ffi::kMajor;
  metadata.version.minor = ffi::kMinor;
  metadata.traits = ffi::kCommandBuffers;
  return true;
}

bool is_served(const ffi::Call& call) {
  return call.api->version.major == ffi::kMajor && call.api->version.minor >= ffi::kMinor &&
         call.api->size >= sizeof(ffi::Api);
}

std::optional<std::string_view> text_of(const ffi::Call& call, std::string_view name) {
  const void* const found = attribute(call, name, ffi::Kind::text);
  if (found == nullptr) return std::nullopt;
  return view(*static_cast<const ffi::Bytes*>(found));
}

std::optional<std::int64_t> integer_of(const ffi::Call& call, std::string_view name) {
  const auto* found = static_cast<const ffi::Scalar*>(attribute(call, name, ffi::Kind::scalar));
  if (found == nullptr || found->type != ffi::Type::s64) return std::nullopt;
  return *static_cast<const std::int64_t*>(found->value);
}

std::optional<std::span<const double>> reals_of(const ffi::Call& call, std::string_view name) {
  const auto* found = static_cast<const ffi::Array*>(attribute(call, name, ffi::Kind::array));
  if (found == nullptr || found->type != ffi::Type::f64) return std::nullopt;
  return std::span(static_cast<const double*>(found->data), found->count);
}

const ffi::Buffer* buffer_of(const ffi::Buffers& buffers, std::size_t place) {
  if (place >= static_cast<std::size_t>(buffers.count) || buffers.kinds[place] != ffi::kBuffer)
    return nullptr;
  return static_cast<const ffi::Buffer*>(buffers.buffers[place]);
}

std::int64_t count_of(const ffi::Buffer& buffer) {
  std::int64_t count = 1;
  for (std::int64_t i = 0; i < buffer.rank; ++i) count *= buffer.dims[i];
  return count;
}

std::int64_t element_bytes(ffi::Type type) {
  return static_cast<std::int64_t>(attn_dtype_bytes(dtype_of(type).value_or(attn_dtype{})));
}

std::optional<attn_dtype> dtype_of(ffi::Type type) {
  const auto* found = std::ranges::find(kTypes, type, &Named::type);
  if (found == kTypes.end()) return std::nullopt;
  return found->dtype;
}

std::optional<ffi::Type> type_of(attn_dtype dtype) {
  const auto* found = std::ranges::find(kTypes, dtype, &Named::dtype);
  if (found == kTypes.end()) return std::nullopt;
  return found->type;
}

}  // namespace attn::xla
