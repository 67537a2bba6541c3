// Classifies failures of the CUDA driver. The payload of an Error `cuda` holds the class: {"cuda":
// 2, "name": "CUDA_ERROR_OUT_OF_MEMORY", "kind": "out_of_memory"}.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace attn::cuda {

enum class FailureKind : std::uint8_t {
  other,
  out_of_memory,  // device memory
  fault,          // a sticky error: every later call in this process fails too
  no_driver,      // no driver, an unusable one, or no device
};
std::string_view to_string(FailureKind kind);

struct Failure {
  FailureKind kind = FailureKind::other;
  int code = 0;  // CUresult; 0 if no driver reported one
  bool operator==(const Failure&) const = default;
};

Failure failure_for(int code);

// The JSON payload of an error; `name` is the driver's name of the code, or empty.
std::string to_payload(const Failure& failure, std::string_view name = "");

// Parses such a payload; nullopt for errors that the driver did not report.
std::optional<Failure> failure_of(const Error& error);

// An error `cuda` like the driver's when device memory is exhausted.
Error out_of_memory(std::string message);

}  // namespace attn::cuda
