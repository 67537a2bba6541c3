#include "runtime/io/element.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "runtime/base/check.h"

namespace attn::io {
namespace {

static_assert(std::endian::native == std::endian::little, "files and devices are little endian");

constexpr double kExact = 9007199254740992.0;  // 2^53: integers up to it are exact doubles

bool is_integer_within(double value, double low, double high) {
  return value >= low && value <= high && std::trunc(value) == value;
}

template <typename Bits>
void put(Bits bits, std::byte* bytes) {
  std::memcpy(bytes, &bits, sizeof(bits));
}

template <typename Bits>
Bits get(const std::byte* bytes) {
  Bits bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

}  // namespace

bool fits(DType type, double value) {
  switch (type) {
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64:
    case DType::e4m3:
    case DType::e5m2:
    case DType::e8m0: return true;
    case DType::i8: return is_integer_within(value, -128, 127);
    case DType::u8: return is_integer_within(value, 0, 255);
    case DType::i32: return is_integer_within(value, -2147483648.0, 2147483647.0);
    case DType::i64: return is_integer_within(value, -kExact, kExact);
    case DType::boolean: return value == 0 || value == 1;
  }
  return false;
}

void store(DType type, double value, std::byte* bytes) {
  ATTN_CHECK(fits(type, value), "the value must fit the type");
  switch (type) {
    case DType::f16: return put(to_f16_bits(value), bytes);
    case DType::bf16: return put(to_bf16_bits(value), bytes);
    case DType::f32: return put(static_cast<float>(value), bytes);
    case DType::f64: return put(value, bytes);
    case DType::i8: return put(static_cast<std::int8_t>(value), bytes);
    case DType::u8: return put(static_cast<std::uint8_t>(value), bytes);
    case DType::i32: return put(static_cast<std::int32_t>(value), bytes);
    case DType::i64: return put(static_cast<std::int64_t>(value), bytes);
    case DType::boolean: return put(static_cast<std::uint8_t>(value), bytes);
    case DType::e4m3:
    case DType::e5m2: return put(to_fp8_bits(type, value), bytes);
    case DType::e8m0: return put(to_e8m0_bits(value), bytes);
  }
}

double load(DType type, const std::byte* bytes) {
  switch (type) {
    case DType::f16: return from_f16_bits(get<std::uint16_t>(bytes));
    case DType::bf16: return from_bf16_bits(get<std::uint16_t>(bytes));
    case DType::f32: return get<float>(bytes);
    case DType::f64: return get<double>(bytes);
    case DType::i8: return get<std::int8_t>(bytes);
    case DType::u8: return get<std::uint8_t>(bytes);
    case DType::i32: return get<std::int32_t>(bytes);
    case DType::i64: return static_cast<double>(get<std::int64_t>(bytes));
    case DType::boolean: return get<std::uint8_t>(bytes) != 0 ? 1 : 0;
    case DType::e4m3:
    case DType::e5m2: return from_fp8_bits(type, get<std::uint8_t>(bytes));
    case DType::e8m0: return from_e8m0_bits(get<std::uint8_t>(bytes));
  }
  return 0;
}

}  // namespace attn::io
