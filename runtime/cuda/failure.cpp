#include "runtime/cuda/failure.h"

#include <cuda.h>
#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace attn::cuda {
namespace {

constexpr std::string_view kBegin = R"({"cuda": )";
constexpr FailureKind kKinds[] = {FailureKind::other, FailureKind::out_of_memory,
                                  FailureKind::fault, FailureKind::no_driver};

}  // namespace

std::string_view to_string(FailureKind kind) {
  switch (kind) {
    case FailureKind::other: return "other";
    case FailureKind::out_of_memory: return "out_of_memory";
    case FailureKind::fault: return "fault";
    case FailureKind::no_driver: return "no_driver";
  }
  return "other";
}

Failure failure_for(int code) {
  switch (code) {
#define ATTN_CUDA_FAILURE(kind, result) \
  case result:                          \
    return {FailureKind::kind, code};
#include "runtime/cuda/failures.def"
#undef ATTN_CUDA_FAILURE
    default: return {FailureKind::other, code};
  }
}

std::string to_payload(const Failure& failure, std::string_view name) {
  return fmt::format(R"({}{}, "name": "{}", "kind": "{}"}})", kBegin, failure.code, name,
                     to_string(failure.kind));
}

std::optional<Failure> failure_of(const Error& error) {
  const std::string_view text = error.payload;
  if (error.code != ErrorCode::cuda || !text.starts_with(kBegin)) return std::nullopt;
  Failure failure;
  const std::string_view rest = text.substr(kBegin.size());
  std::from_chars(rest.data(), rest.data() + rest.size(), failure.code);
  for (const FailureKind kind : kKinds) {
    if (rest.ends_with(fmt::format(R"("kind": "{}"}})", to_string(kind)))) failure.kind = kind;
  }
  return failure;
}

Error out_of_memory(std::string message) {
  return {ErrorCode::cuda,
          std::move(message),
          {},
          to_payload(failure_for(CUDA_ERROR_OUT_OF_MEMORY), "CUDA_ERROR_OUT_OF_MEMORY")};
}

}  // namespace attn::cuda
