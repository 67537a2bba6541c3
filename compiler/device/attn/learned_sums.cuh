// Sums of numbers that blocks of threads add in any order: they are integers, so their bits do not
// depend on it.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// Sums of f32 numbers as integers of 64 bits: word w counts units of 2^(32 w - 128). A number has
// bits in two words at most, less than 2^32 in each, so 2^31 numbers fit. Those below 2^-105 count
// as 0. The last word is 0 unless a number is not finite.
struct ExactSums {
  static constexpr int kWords = 9;
  unsigned long long* words;  // [kWords, elements], 0 at first
  long long elements;

  __device__ __forceinline__ void add(long long element, float x) const {
    const unsigned bits = __float_as_uint(x), exponent = bits >> 23 & 255;
    if (exponent < 22) return;
    const unsigned place = exponent - 22;
    const unsigned long long units = (unsigned long long)((bits & 0x7fffff) | 0x800000)
                                     << (place & 31);
    const bool negative = bits >> 31 && exponent != 255;
    unsigned long long* const word = words + place / 32 * elements + element;
    add_word(word, units & 0xffffffff, negative);
    if (units >> 32 != 0) add_word(word + elements, units >> 32, negative);
  }

  __device__ double sum(long long element) const {
    if (words[(kWords - 1) * elements + element] != 0) return 0.0 / 0.0;
    double sum = 0;
    for (int word = kWords - 2; word >= 0; --word) {
      sum += ldexp((double)(long long)words[word * elements + element], 32 * word - 128);
    }
    return sum;
  }

 private:
  static __device__ __forceinline__ void add_word(unsigned long long* word, unsigned long long x,
                                                  bool negative) {
    atomicAdd(word, negative ? 0 - x : x);
  }
};

// Where there are as many sums as scores of a head, each is one word: a multiple of a power of two
// that the largest rows of dO and V give, and the largest dlse. The words of all learned tensors
// have this before them.
struct Largest {
  static constexpr int kWords = 4;
  unsigned long long squares[2];  // bits of the largest squares of rows, of dO and of V
  unsigned long long lost;        // numbers that are not finite
  unsigned long long of_lse;      // bits of the largest magnitude in dlse; 0 without one

  // Twice a product of these rows, plus a dlse, is below 2^(power + 1).
  __device__ int power() const {
    const int power = ((int)(squares[0] >> 23) + (int)(squares[1] >> 23) - 254 + 3) >> 1;
    if (of_lse == 0) return power;
    const int by_lse = (int)(of_lse >> 23) - 126;
    return 1 + (power > by_lse ? power : by_lse);
  }
  // Adds a dlse, by all threads that have one.
  __device__ void include(float d_lse) {
    const unsigned long long bits = __float_as_uint(d_lse) & 0x7fffffff;
    if (bits > *(volatile unsigned long long*)&of_lse) atomicMax(&of_lse, bits);
  }
  // The exponent of a unit, negated: sums are below 2^(power + bits), and 2^61 units.
  static __device__ int exponent(int power, int bits) {
    const int exponent = 61 - bits - power;
    return exponent < -126 ? -126 : exponent > 126 ? 126 : exponent;
  }
  __device__ bool is_finite() const {
    return lost == 0 && squares[0] < 0x7f800000 && squares[1] < 0x7f800000 && of_lse < 0x7f800000;
  }
};

struct FixedSums {
  Largest* largest;
  unsigned long long* words;  // [elements], 0 at first

  // What a number is multiplied by.
  static __device__ __forceinline__ float units(int power, int bits) {
    return __uint_as_float((unsigned)(Largest::exponent(power, bits) + 127) << 23);
  }
  static __device__ __forceinline__ void add(unsigned long long* word, float units) {
    atomicAdd(word, (unsigned long long)llrintf(units));
  }
  // If a number was not finite.
  __device__ __forceinline__ void lose() const { atomicAdd(&largest->lost, 1ull); }

  // NaN, if any number was not finite.
  __device__ double sum(long long element, int bits) const {
    const int exponent = Largest::exponent(largest->power(), bits);
    return largest->is_finite() ? ldexp((double)(long long)words[element], -exponent) : 0.0 / 0.0;
  }
};

}  // namespace kernels
