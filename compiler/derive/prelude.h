// The prelude that every derive kernel includes. Its name must change whenever the meaning of a
// function does: it is part of a kernel's source, and so of a plan's signature.
#pragma once

namespace attn::derive {

inline constexpr const char* kPreludeName = "attn_derive_1.h";
inline constexpr const char* kPrelude =
    R"(// Integers are 32 bits and wrap, reals are computed in double. What has no value is 0.
static __device__ int attn_wrap(long long x) { return (int)(unsigned)x; }
static __device__ int attn_floordiv(int x, int y) {
  if (y == 0) return 0;
  if (y == -1) return attn_wrap(-(long long)x);
  const int q = x / y;
  return x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}
static __device__ int attn_mod(int x, int y) {
  if (y == 0 || y == -1) return 0;
  const int r = x % y;
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
static __device__ int attn_shl(int x, int y) {
  return y < 0 || y > 31 ? 0 : (int)((unsigned)x << y);
}
static __device__ int attn_shr(int x, int y) { return y < 0 || y > 31 ? 0 : x >> y; }
static __device__ int attn_truncate(double x) {
  const double whole = trunc(x);
  return whole >= -2147483648.0 && whole < 2147483648.0 ? (int)whole : 0;
}
static __device__ double attn_min(double x, double y) { return x != x || x < y ? x : y; }
static __device__ double attn_max(double x, double y) { return x != x || x > y ? x : y; }
static __device__ double attn_bf16(unsigned short bits) {
  return __uint_as_float((unsigned)bits << 16);
}
static __device__ double attn_f16(unsigned short bits) {
  const unsigned sign = (unsigned)(bits & 0x8000) << 16, exponent = bits >> 10 & 31;
  const unsigned fraction = bits & 1023;
  if (exponent == 0) return (sign != 0 ? -1.0 : 1.0) * (fraction / 16777216.0);
  const unsigned scaled = exponent == 31 ? 255 : exponent + 112;
  return __uint_as_float(sign | scaled << 23 | fraction << 13);
}
)";

}  // namespace attn::derive
