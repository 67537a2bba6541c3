// What kind of failure the CUDA driver reported. An Error of code `cuda` says it in its payload:
// {"cuda": 2, "name": "CUDA_ERROR_OUT_OF_MEMORY", "kind": "out_of_memory"}.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace attn::cuda {

enum class FailureKind : std::uint8_t {
  other,
  out_of_memory,  // of the device
  fault,          // a sticky error: every later call in this process fails too
  no_driver,      // no driver, one that cannot be used, or no device
};
std::string_view to_string(FailureKind kind);

struct Failure {
  FailureKind kind = FailureKind::other;
  int code = 0;  // CUresult; 0 when the driver could not be asked
  bool operator==(const Failure&) const = default;
};

Failure failure_for(int code);

// The payload of an error; `name` is the driver's name of the code, or empty.
std::string to_payload(const Failure& failure, std::string_view name = "");

// What such a payload says; nothing for an error that the driver did not report.
std::optional<Failure> failure_of(const Error& error);

// An error `cuda` as the driver would report it when there is no device memory left.
Error out_of_memory(std::string message);

}  // namespace attn::cuda
