// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace attn {

enum class DType : std::uint8_t {
#define ATTN_DTYPE(name, bytes, is_float) name,
#include "runtime/base/dtype.def"
#undef ATTN_DTYPE
};

// The spelling used in specs, plan files and messages ("bf16", "i32", ...; boolean is "bool").
std::string_view to_string(DType type);

// The type with this spelling, or nullopt.
std::optional<DType> parse_dtype(std::string_view text);

// Bytes of one element.
std::size_t size_of(DType type);

bool is_float(DType type);

// IEEE binary16 and bfloat16; round to nearest even, NaN stays NaN, overflow becomes infinity.
std::uint16_t to_f16_bits(double value);
std::uint16_t to_bf16_bits(double value);
double from_f16_bits(std::uint16_t bits);
double from_bf16_bits(std::uint16_t bits);

// `value` rounded to `type` and back (floats round to nearest even).
double round_to(DType type, double value);

}  // namespace attn
