// The body of every handler. Internal to python/native/xla.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "frame.h"

namespace attn::xla {

// Answers what XLA asks for at registration, refuses an XLA that is too old, and catches
// exceptions.
template <typename Body>
void* guarded(void* frame, const Body& body) noexcept {
  const ffi::Call& call = *static_cast<const ffi::Call*>(frame);
  if (answers_metadata(call)) return nullptr;
  if (!is_served(call)) {
    const std::string is =
        std::to_string(call.api->version.major) + "." + std::to_string(call.api->version.minor);
    return failure(call, ATTN_STATUS_UNSUPPORTED,
                   "XLA's foreign function interface is " + is +
                       ", and 0.1 of jaxlib 0.8, or a later one, is needed");
  }
  try {
    return body(call);
  } catch (const std::bad_alloc&) {
    return failure(call, ATTN_STATUS_OUT_OF_MEMORY, std::string("the host is out of memory"));
  } catch (const std::exception& exception) {
    return failure(call, ATTN_STATUS_INTERNAL, std::string(exception.what()));
  }
}

}  // namespace attn::xla
