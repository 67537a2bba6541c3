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

// Whether it is one of the 8-bit floats, e4m3 or e5m2: those of the OCP 8-bit Floating Point
// Specification, revision 1.0. e4m3 (there E4M3, elsewhere e4m3fn) has no infinity and ends at 448,
// e5m2 at 57344.
bool is_fp8(DType type);

// The largest finite value of a float type. (That of e8m0, a scale of the OCP Microscaling Formats
// Specification 1.0, is 2^127: it holds the powers of two from 2^-127 on, and NaN; no sign, no 0.)
double max_finite(DType type);

// IEEE binary16 and bfloat16; round to nearest even, NaN stays NaN, overflow becomes infinity.
std::uint16_t to_f16_bits(double value);
std::uint16_t to_bf16_bits(double value);
double from_f16_bits(std::uint16_t bits);
double from_bf16_bits(std::uint16_t bits);

// The bits of e4m3 or e5m2 and back. Rounds to nearest even and saturates, as GPUs convert
// (cvt.rn.satfinite): what is beyond the largest value, infinity too, becomes it. NaN stays NaN.
std::uint8_t to_fp8_bits(DType type, double value);
double from_fp8_bits(DType type, std::uint8_t bits);

// The bits of e8m0 and back: the exponent plus 127, 0xFF for NaN. Rounds a positive value to the
// nearest power of two, ties up, and saturates; a value that is not positive has no scale: NaN.
std::uint8_t to_e8m0_bits(double value);
double from_e8m0_bits(std::uint8_t bits);

// Whether e8m0 holds the value exactly, or it is NaN.
bool is_e8m0(double value);

// `value` rounded to `type` and back (floats round to nearest even; 8-bit floats saturate).
double round_to(DType type, double value);

}  // namespace attn
