// What every kernel has: the thread's number, and the operations of expressions. Integers are 32
// or 64 bits and wrap, reals are computed in double. What has no value is 0.
#pragma once

static __device__ long long attn_thread() {
  return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}

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

// The same operations on 64 bits.
static __device__ long long attn_floordiv(long long x, long long y) {
  if (y == 0) return 0;
  if (y == -1) return (long long)(0ull - (unsigned long long)x);
  const long long q = x / y;
  return x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}

static __device__ long long attn_mod(long long x, long long y) {
  if (y == 0 || y == -1) return 0;
  const long long r = x % y;
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

static __device__ long long attn_shl(long long x, long long y) {
  return y < 0 || y > 63 ? 0 : (long long)((unsigned long long)x << y);
}

static __device__ long long attn_shr(long long x, long long y) {
  return y < 0 || y > 63 ? 0 : x >> y;
}

// The integer of 32 bits that is nearest.
static __device__ int attn_narrow(long long x) {
  return x < -2147483648ll ? -2147483647 - 1 : x > 2147483647ll ? 2147483647 : (int)x;
}

static __device__ int attn_truncate(double x) {
  const double whole = trunc(x);
  return whole >= -2147483648.0 && whole < 2147483648.0 ? (int)whole : 0;
}

static __device__ double attn_min(double x, double y) { return x != x || x < y ? x : y; }
static __device__ double attn_max(double x, double y) { return x != x || x > y ? x : y; }

static __device__ float attn_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// 16-bit floats, which tensors hold as bits.
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

// 8-bit floats, likewise.
static __device__ double attn_e4m3(unsigned char bits) {
  const unsigned exponent = bits >> 3 & 15, fraction = bits & 7;
  const double sign = bits & 0x80 ? -1.0 : 1.0;
  if (exponent == 0) return sign * (fraction / 512.0);
  if ((bits & 0x7f) == 0x7f) return __uint_as_float(0x7fffffffu);
  return sign * __uint_as_float((exponent + 120) << 23 | fraction << 20);
}

static __device__ double attn_e5m2(unsigned char bits) {
  return attn_f16((unsigned short)(bits << 8));  // the upper byte of a half
}

namespace kernels {

static __device__ float nothing() { return __uint_as_float(0xff800000u); }  // -inf

// The elements of a 16-bit tensor: `value` in double; `widen` and `narrow` with one instruction.
struct F16 {
  using Bits = unsigned short;
  static __device__ double value(unsigned short bits) { return attn_f16(bits); }
  static __device__ float widen(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
  static __device__ unsigned short narrow(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
  }
};

struct BF16 {
  using Bits = unsigned short;
  static __device__ double value(unsigned short bits) { return attn_bf16(bits); }
  static __device__ float widen(unsigned short bits) {
    return __uint_as_float((unsigned)bits << 16);
  }
  static __device__ unsigned short narrow(float x) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
  }
};

// The type of an 8-bit tensor (runtime/base/dtype.h), with the binary logarithm of its largest
// number.
struct E4M3 {
  using Bits = unsigned char;
  static __device__ double value(unsigned char bits) { return attn_e4m3(bits); }
  static constexpr float kLog2OfMost = 8.807354f;
};
struct E5M2 {
  using Bits = unsigned char;
  static __device__ double value(unsigned char bits) { return attn_e5m2(bits); }
  static constexpr float kLog2OfMost = 15.807354f;
};
// Integers from -128 to 127.
struct I8 {
  using Bits = signed char;
};

}  // namespace kernels
