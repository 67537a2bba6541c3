// Reads and writes structures of attn.h that begin with their size. Internal to runtime/api.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace attn::api {

inline constexpr std::size_t kMostBytes = 4096;  // upper bound for all structures, forever

inline Status check_size(std::size_t size) {
  if (size >= sizeof(std::size_t) && size <= kMostBytes) return {};
  return Status(ErrorCode::invalid_argument,
                "the size of a structure is " + std::to_string(size) + ", but must be its sizeof");
}

// Copies the caller's structure; fields that it does not have are 0. Null reads as all 0. Errors:
// invalid_argument if a newer caller set a field that this library does not know.
template <typename Options>
Result<Options> read_sized(const Options* given) {
  Options options = {};
  if (given == nullptr) return options;
  ATTN_RETURN_IF_ERROR(check_size(given->size));
  std::memcpy(&options, given, std::min(given->size, sizeof(Options)));
  const char* bytes = reinterpret_cast<const char*>(given);
  const auto is_set = [](char byte) { return byte != 0; };
  if (given->size > sizeof(Options) &&
      std::any_of(bytes + sizeof(Options), bytes + given->size, is_set)) {
    return {ErrorCode::invalid_argument,
            "the caller's attn.h is newer than libattn, which does not know an option that is set"};
  }
  if constexpr (requires { options.reserved; }) {
    if (options.reserved != 0) {
      return {ErrorCode::invalid_argument, "`reserved` of a structure must be 0"};
    }
  }
  return options;
}

// Copies the caller's array of `size`-byte elements; size 0 means `first`, the element size of the
// first attn.h. Fields that an older caller does not have are 0. Errors: invalid_argument, also if
// a newer caller set a field that this library does not know.
template <typename Element>
Result<std::vector<Element>> read_array(const Element* items, std::size_t count, std::size_t size,
                                        std::size_t first) {
  if (size == 0) size = first;
  if (size < first || size > kMostBytes) {
    return {ErrorCode::invalid_argument, "the size of an array's elements is " +
                                             std::to_string(size) + ", but must be their sizeof"};
  }
  std::vector<Element> read(count);
  const char* bytes = reinterpret_cast<const char*>(items);
  const auto is_set = [](char byte) { return byte != 0; };
  for (Element& element : read) {
    std::memcpy(&element, bytes, std::min(size, sizeof(Element)));
    if (size > sizeof(Element) && std::any_of(bytes + sizeof(Element), bytes + size, is_set)) {
      return {ErrorCode::invalid_argument,
              "the caller's attn.h is newer than libattn, which does not know a field that is set"};
    }
    bytes += size;
  }
  return read;
}

// Writes `values` to a caller's array of `size`-byte elements.
template <typename Element>
Status write_array(Element* target, std::size_t size, const std::vector<Element>& values) {
  if (size == 0 || size > kMostBytes) {
    return Status(ErrorCode::invalid_argument, "the size of an array's elements is " +
                                                   std::to_string(size) +
                                                   ", but must be their sizeof");
  }
  char* bytes = reinterpret_cast<char*>(target);
  for (const Element& value : values) {
    std::memcpy(bytes, &value, std::min(size, sizeof(Element)));
    bytes += size;
  }
  return {};
}

// Writes `value` to `target` (not null), up to target->size.
template <typename Info>
Status write_sized(Info* target, Info value) {
  ATTN_RETURN_IF_ERROR(check_size(target->size));
  value.size = target->size;
  std::memcpy(target, &value, std::min(target->size, sizeof(Info)));
  return {};
}

}  // namespace attn::api
