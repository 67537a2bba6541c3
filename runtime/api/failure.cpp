#include "runtime/api/failure.h"

#include "runtime/cuda/failure.h"

namespace attn::api {
namespace {

constexpr const char* kNoMemory = "the host is out of memory";

bool is_no_memory(const attn_error* error) { return error->status == ATTN_STATUS_OUT_OF_MEMORY; }

attn_cuda_failure number_of(cuda::FailureKind kind) {
  switch (kind) {
    case cuda::FailureKind::other: return ATTN_CUDA_OTHER;
    case cuda::FailureKind::out_of_memory: return ATTN_CUDA_OUT_OF_MEMORY;
    case cuda::FailureKind::fault: return ATTN_CUDA_FAULT;
    case cuda::FailureKind::no_driver: return ATTN_CUDA_NO_DRIVER;
  }
  return ATTN_CUDA_OTHER;
}

std::optional<cuda::Failure> failure_of(const attn_error* error) {
  if (error == nullptr || error->status != ATTN_STATUS_CUDA) return std::nullopt;
  return cuda::failure_of(error->error);
}

}  // namespace

attn_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return ATTN_STATUS_INVALID_ARGUMENT;
    case ErrorCode::invalid_spec: return ATTN_STATUS_INVALID_SPEC;
    case ErrorCode::unsupported: return ATTN_STATUS_UNSUPPORTED;
    case ErrorCode::binding: return ATTN_STATUS_BINDING;
    case ErrorCode::cuda: return ATTN_STATUS_CUDA;
    case ErrorCode::cudnn: return ATTN_STATUS_CUDNN;
    case ErrorCode::nccl: return ATTN_STATUS_NCCL;
    case ErrorCode::worker: return ATTN_STATUS_WORKER;
    case ErrorCode::io: return ATTN_STATUS_IO;
    case ErrorCode::mismatch: return ATTN_STATUS_MISMATCH;
    case ErrorCode::plan_truncated: return ATTN_STATUS_PLAN_TRUNCATED;
    case ErrorCode::plan_damaged: return ATTN_STATUS_PLAN_DAMAGED;
    case ErrorCode::plan_foreign: return ATTN_STATUS_PLAN_FOREIGN;
    case ErrorCode::plan_newer: return ATTN_STATUS_PLAN_NEWER;
    case ErrorCode::plan_version: return ATTN_STATUS_PLAN_VERSION;
    case ErrorCode::plan_device: return ATTN_STATUS_PLAN_DEVICE;
    case ErrorCode::plan_shape: return ATTN_STATUS_PLAN_SHAPE;
    case ErrorCode::plan_pending: return ATTN_STATUS_PLAN_PENDING;
    case ErrorCode::plan_refused: return ATTN_STATUS_PLAN_REFUSED;
    case ErrorCode::internal: break;
  }
  return ATTN_STATUS_INTERNAL;
}

attn_status report(attn_error* error, const Status& status) {
  const attn_status code = status.ok() ? ATTN_STATUS_OK : status_of(status.error().code);
  if (error == nullptr || (status.ok() && error->status == ATTN_STATUS_OK)) return code;
  error->error = status.ok() ? Error{} : status.error();
  error->text = status.ok() ? std::string() : status.error().to_text();
  error->status = code;
  return code;
}

attn_status report_no_memory(attn_error* error) noexcept {
  if (error != nullptr) {
    error->error.notes.clear();
    error->error.payload.clear();
    error->status = ATTN_STATUS_OUT_OF_MEMORY;
  }
  return ATTN_STATUS_OUT_OF_MEMORY;
}

attn_status report_exception(attn_error* error, const char* what) noexcept {
  try {
    return report(error, Status(ErrorCode::internal, std::string("a bug in attnc: ") + what));
  } catch (...) {
    return report_no_memory(error);
  }
}

ATTN_API attn_error* attn_error_create(void) { return new (std::nothrow) attn_error(); }

ATTN_API void attn_error_destroy(attn_error* error) { delete error; }

ATTN_API attn_status attn_error_status(const attn_error* error) {
  return error == nullptr ? ATTN_STATUS_OK : error->status;
}

ATTN_API const char* attn_error_message(const attn_error* error) {
  if (error == nullptr || error->status == ATTN_STATUS_OK) return "";
  return is_no_memory(error) ? kNoMemory : error->error.message.c_str();
}

ATTN_API size_t attn_error_note_count(const attn_error* error) {
  return error == nullptr ? 0 : error->error.notes.size();
}

ATTN_API const char* attn_error_note(const attn_error* error, size_t index) {
  return index < attn_error_note_count(error) ? error->error.notes[index].c_str() : "";
}

ATTN_API const char* attn_error_payload(const attn_error* error) {
  return error == nullptr ? "" : error->error.payload.c_str();
}

ATTN_API attn_cuda_failure attn_error_cuda_failure(const attn_error* error) {
  const auto failure = failure_of(error);
  return failure ? number_of(failure->kind) : ATTN_CUDA_NONE;
}

ATTN_API int32_t attn_error_cuda_code(const attn_error* error) {
  const auto failure = failure_of(error);
  return failure ? failure->code : 0;
}

ATTN_API const char* attn_error_text(const attn_error* error) {
  if (error == nullptr) return "";
  return is_no_memory(error) ? kNoMemory : error->text.c_str();
}

}  // namespace attn::api
