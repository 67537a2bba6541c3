// From the house's errors to those of attn.h. Private to this room.
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

// Each keeps what it is told in `error`, unless that is null, and returns its status.
attn_status report(attn_error* error, const Status& status);
attn_status report_no_memory(attn_error* error) noexcept;
attn_status report_exception(attn_error* error, const char* what) noexcept;

// What a function of attn.h does: `body` returns a Status, and nothing that it throws leaves.
template <typename Body>
attn_status guarded(attn_error* error, const Body& body) noexcept {
  try {
    return report(error, body());
  } catch (const std::bad_alloc&) {
    return report_no_memory(error);
  } catch (const std::exception& exception) {
    return report_exception(error, exception.what());
  } catch (...) {
    return report_exception(error, "something that is no std::exception");
  }
}

struct Needed {
  const void* pointer;
  const char* what;  // "a runtime"
};

// Errors: invalid_argument, naming the first that is null.
inline Status check_given(std::initializer_list<Needed> all) {
  for (const Needed& needed : all) {
    if (needed.pointer == nullptr) [[unlikely]] {
      return Status(ErrorCode::invalid_argument, std::string(needed.what) + " is needed, not NULL");
    }
  }
  return {};
}

}  // namespace attn::api
