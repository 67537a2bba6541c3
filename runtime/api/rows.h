// Checks of the tensors that attn_append and attn_merge are given. Internal to runtime/api.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "runtime/api/attn.h"
#include "runtime/base/status.h"

namespace attn::api {

// An operations::Type, and its bytes.
struct ElementType {
  int number = 0;
  std::int64_t bytes = 0;
};

// f16, bf16 or f32; for a pool e4m3 or e5m2, too. Errors: binding, naming the tensor.
enum class Holds : bool { rows, pool };
Result<ElementType> type_of(const char* name, attn_dtype dtype, Holds holds = Holds::rows);

// The type of a tensor that is there. Errors: binding for a type, a size or an address that it
// cannot have.
Result<ElementType> check_rows(const char* name, const attn_rows& rows);
// Errors: binding if the address does not fit the type.
Status check_address(const char* name, const void* data, ElementType type);

// Errors: binding if heads or width differ.
Status check_same(const char* name, const attn_rows& rows, const char* other_name,
                  const attn_rows& other);

// A stride in bytes; of a dimension of size 1 it does not matter.
inline std::int64_t bytes_of(std::int64_t stride, std::int64_t size, ElementType type) {
  return size > 1 ? stride * type.bytes : 0;
}

// How many elements a thread can read at once: 8, 4, 2 or 1, the largest power of two that divides
// all that is given, which is the lowest bit of any.
class Vector {
 public:
  // It must divide what is read.
  void divide(std::int64_t elements) { bits_ |= static_cast<std::uint64_t>(elements); }
  // The address and the strides, in bytes, must be multiples of its bytes, or of 16.
  void fit(const void* data, std::initializer_list<std::int64_t> strides, ElementType type) {
    std::uint64_t bytes = kMostBytes | reinterpret_cast<std::uintptr_t>(data);
    for (const std::int64_t stride : strides) bytes |= static_cast<std::uint64_t>(stride);
    const std::uint64_t multiple = lowest(bytes);
    if (multiple == kMostBytes) return;
    const auto size = static_cast<std::uint64_t>(type.bytes);
    bits_ |= multiple > size ? multiple / size : 1;
  }

  int elements() const { return static_cast<int>(lowest(bits_)); }

 private:
  static constexpr std::uint64_t kMostBytes = 16;
  static constexpr std::uint64_t lowest(std::uint64_t bits) { return bits & (~bits + 1); }

  std::uint64_t bits_ = 8;
};

}  // namespace attn::api
