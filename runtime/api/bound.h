// What bindings of all kinds share. Internal to runtime/api.
#pragma once

#include <fmt/format.h>

#include <span>

#include "runtime/api/failure.h"
#include "runtime/api/handles.h"

namespace attn::api {

inline Result<execute::Check> check_of(attn_check check) {
  if (check == ATTN_CHECK_ADDRESSES) return execute::Check::yes;
  if (check == ATTN_CHECK_NOTHING) return execute::Check::no;
  return {ErrorCode::invalid_argument, fmt::format("{} is not an attn_check", check)};
}

// Checks the devices that DLPack tensors name; binding itself checks where the memory is.
inline Status check_devices(const attn_arguments& arguments, int device) {
  for (const auto& [name, given] : arguments.devices) {
    if (given == device) continue;
    return Status(
        ErrorCode::binding,
        fmt::format("tensor '{}' is on CUDA device {}, but the plan is loaded on device {}", name,
                    given, device));
  }
  return {};
}

// For a binding of any kind, or a graph. `more`: what else its own set_addresses takes.
template <typename Bound, typename... More>
Status set_addresses(Bound& bound, void* const* addresses, std::size_t count, attn_check check,
                     More... more) {
  if (count > 0) ATTN_RETURN_IF_ERROR(check_given({{addresses, "addresses"}}));
  ATTN_ASSIGN(const execute::Check how, check_of(check));
  return bound.set_addresses(std::span(addresses, count), how, more...);
}

template <typename Bound>
Status set_param(Bound& bound, const char* name, double value) {
  ATTN_RETURN_IF_ERROR(check_given({{name, "the param's name"}}));
  return bound.set_param(name, value);
}

}  // namespace attn::api
