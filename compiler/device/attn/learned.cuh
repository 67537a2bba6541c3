// Gradients of learned tensors: sums over all scores, or rows, that read an element. They do not
// depend on the order of threads, since they are sums of integers: multiples of a power of two that
// is chosen by the largest part.
#pragma once

#include "attn/values.cuh"

namespace kernels {

// The bits of non-negative doubles are ordered like the numbers, NaN last.
static __device__ int exponent_of(long long bits) { return (int)(bits >> 52) - 1022; }

static __device__ long long fixed(double x, int exponent) {
  return x - x == 0 ? llrint(ldexp(x, exponent)) : 0;
}

// The sum that the largest part and the sum of an element represent, or NaN.
static __device__ double sum_of_parts(long long largest, long long sum, int spare) {
  const bool finite = largest < 0x7ff0000000000000ll;
  return finite ? ldexp((double)sum, exponent_of(largest) - spare) : 0.0 / 0.0;
}

// The bits of the largest absolute value of the parts of each element.
struct LargestPart {
  long long* largest = nullptr;
  unsigned long long top = 0;

  __device__ void begin(long long) { top = 0; }
  __device__ void add(double part) {
    const unsigned long long bits = __double_as_longlong(fabs(part));
    if (bits > top) top = bits;
  }
  __device__ void end(long long element) const {
    auto* place = (unsigned long long*)largest + element;
    if (top != 0 && top > *(volatile unsigned long long*)place) atomicMax(place, top);
  }
};

// The sum of the parts of each element, in units of 2^(exponent of the largest - spare).
struct SumOfParts {
  const long long* largest = nullptr;
  long long* sums = nullptr;
  int spare = 0;
  long long sum = 0;
  int exponent = 0;

  __device__ void begin(long long element) {
    sum = 0;
    exponent = spare - exponent_of(largest[element]);
  }
  __device__ void add(double part) { sum += fixed(part, exponent); }
  __device__ void end(long long element) const {
    if (sum != 0) atomicAdd((unsigned long long*)sums + element, (unsigned long long)sum);
  }
};

// Thread i walks down a column of scores, `kRun` rows of one head, or of one tile.
template <typename Parts>
struct Walk {
  static constexpr long long kRun = 32;
  long long threads = 1;
  long long rows = 1;     // of a head, or of a tile
  long long columns = 1;  // of scores; 1 for a walk over rows
  Parts parts;

  // part_at(row, column, element, part) finds the part at a row of all heads, or of the tile, and
  // the element that it belongs to; false if there is none. Adjacent rows often have the same
  // element.
  template <typename PartAt>
  __device__ void run(long long i, PartAt part_at) {
    if (i >= threads) return;
    const long long chunks = (rows + kRun - 1) / kRun;
    const long long column = i % columns, begin = i / columns % chunks * kRun;
    const long long head = i / columns / chunks;
    const long long end = begin + kRun < rows ? begin + kRun : rows;
    long long held = -1;
    for (long long row = begin; row < end; ++row) {
      long long element = 0;
      double part = 0;
      if (!part_at(head * rows + row, column, element, part)) continue;
      if (element != held) {
        if (held >= 0) parts.end(held);
        held = element;
        parts.begin(element);
      }
      parts.add(part);
    }
    if (held >= 0) parts.end(held);
  }
};

}  // namespace kernels
