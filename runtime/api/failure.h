// Converts internal errors to attn_error, and guards the C API. Internal to runtime/api.
#pragma once

#include <exception>
#include <initializer_list>
#include <new>
#include <string>

#include "runtime/api/attn.h"
#include "runtime/base/status.h"

struct attn_error {
  attn_status status = ATTN_STATUS_OK;
  attn::Error error;
  std::string text;
};

namespace attn::api {

attn_status status_of(ErrorCode code);

// Each stores the error in `error`, unless that is null, and returns its status.
attn_status report(attn_error* error, const Status& status);
attn_status report_no_memory(attn_error* error) noexcept;
attn_status report_exception(attn_error* error, const char* what) noexcept;

// Body of every fallible function of attn.h: reports the Status of `body` and catches exceptions.
template <typename Body>
attn_status guarded(attn_error* error, const Body& body) noexcept {
  try {
    return report(error, body());
  } catch (const std::bad_alloc&) {
    return report_no_memory(error);
  } catch (const std::exception& exception) {
    return report_exception(error, exception.what());
  } catch (...) {
    return report_exception(error, "an exception that is not a std::exception");
  }
}

struct Needed {
  const void* pointer;
  const char* what;  // "the runtime"
};

// Errors: invalid_argument, naming the first null pointer.
inline Status check_given(std::initializer_list<Needed> all) {
  for (const Needed& needed : all) {
    if (needed.pointer == nullptr) [[unlikely]] {
      return Status(ErrorCode::invalid_argument, std::string(needed.what) + " must not be NULL");
    }
  }
  return {};
}

// The same for a body that needs these pointers.
template <typename Body>
attn_status guarded(attn_error* error, std::initializer_list<Needed> needed,
                    const Body& body) noexcept {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given(needed));
    return body();
  });
}

}  // namespace attn::api
