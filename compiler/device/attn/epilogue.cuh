// Tensors that an epilogue reads along the columns of o, eight at a time.
#pragma once

#include "attn/exchange.cuh"
#include "attn/hopper.cuh"

namespace kernels {

// What a row of o reads of one tensor: its elements are as many as the row's, and adjacent. Float:
// BF16, F16 or float.
template <class Float_>
struct VectorRow {
  using Float = Float_;
  using Bits = typename Float::Bits;
  const Bits* from;
};
template <>
struct VectorRow<float> {
  using Float = float;
  using Bits = float;
  const float* from;
};

// Eight adjacent elements of 16 bits: four pairs.
template <class Float>
struct EightOf {
  unsigned pairs[4];

  __device__ __forceinline__ void load(const unsigned short* from) {
    const uint4 all = __ldg(reinterpret_cast<const uint4*>(from));
    pairs[0] = all.x, pairs[1] = all.y, pairs[2] = all.z, pairs[3] = all.w;
  }
  __device__ __forceinline__ void clear() { pairs[0] = pairs[1] = pairs[2] = pairs[3] = 0; }
  // Gives each of four lanes its pair of the eight of each (exchange.cuh).
  __device__ __forceinline__ void spread(int lane) { exchange(pairs, lane); }
  // Element `of` of pair i.
  __device__ __forceinline__ float at(int i, int of) const {
    return Float::widen((unsigned short)(pairs[i] >> of * 16));
  }
};
template <>
struct EightOf<float> {
  unsigned low[4], high[4];

  __device__ __forceinline__ void load(const float* from) {
    const uint4 first = __ldg(reinterpret_cast<const uint4*>(from));
    const uint4 last = __ldg(reinterpret_cast<const uint4*>(from + 4));
    low[0] = first.x, high[0] = first.y, low[1] = first.z, high[1] = first.w;
    low[2] = last.x, high[2] = last.y, low[3] = last.z, high[3] = last.w;
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 4; ++i) low[i] = high[i] = 0;
  }
  __device__ __forceinline__ void spread(int lane) {
    exchange(low, lane);
    exchange(high, lane);
  }
  __device__ __forceinline__ float at(int i, int of) const {
    return __uint_as_float(of == 0 ? low[i] : high[i]);
  }
};

// Eight columns of all tensors that the epilogue of E reads so, from number kFirst on.
template <class E, int kFirst = 0, bool kMore = (kFirst < E::kVectors)>
struct EpilogueVectors {
  static __device__ __forceinline__ void prefetch(const E&, int, int, int, int, int) {}
  __device__ __forceinline__ void load(const E&, int, int, int, int, bool) {}
  __device__ __forceinline__ void spread(int) {}
  __device__ __forceinline__ void get(int, int, float*) const {}
};
template <class E, int kFirst>
struct EpilogueVectors<E, kFirst, true> {
  using Row = decltype(E::template vector_type<kFirst>());
  EightOf<typename Row::Float> own;
  EpilogueVectors<E, kFirst + 1> rest;

  // Brings a row of so many columns to the L2 cache, by four lanes.
  static __device__ __forceinline__ void prefetch(const E& expressions, int b, int h, int row,
                                                  int columns, int lane) {
    const auto* from = expressions.template vector<kFirst>(b, h, row);
    constexpr int kOfLine = 128 / sizeof(*from);
    for (int column = (lane & 3) * kOfLine; column < columns; column += 4 * kOfLine)
      prefetch_line(from + column);
    EpilogueVectors<E, kFirst + 1>::prefetch(expressions, b, h, row, columns, lane);
  }

  // Nothing is read unless the row and the columns exist.
  __device__ __forceinline__ void load(const E& expressions, int b, int h, int row, int column,
                                       bool exists) {
    if (exists)
      own.load(expressions.template vector<kFirst>(b, h, row) + column);
    else
      own.clear();
    rest.load(expressions, b, h, row, column, exists);
  }
  __device__ __forceinline__ void spread(int lane) {
    own.spread(lane);
    rest.spread(lane);
  }
  __device__ __forceinline__ void get(int i, int of, float* to) const {
    to[kFirst] = own.at(i, of);
    rest.get(i, of, to);
  }
};

}  // namespace kernels
