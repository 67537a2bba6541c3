// Rows of o, as the forward stores them.
#pragma once

#include "attn/exchange.cuh"
#include "attn/hopper.cuh"
#include "attn/tile_rows.cuh"

namespace kernels {

// Two or eight columns.
template <class Base>
struct StoredColumns : Base {
  using C = typename Base::C;
  using Output = typename Base::Output;
  using OutputBits = typename Base::OutputBits;
  using Largest = typename Base::Largest;
  using Base::Base;
  using Base::tensors, Base::expressions, Base::o, Base::bits_of, Base::first_of;

  // What is read of a tile's rows before they are stored: nothing here.
  struct Ahead {};
  __device__ __forceinline__ void read_ahead(const TileRows<C>&, Ahead&) const {}
  __device__ __forceinline__ void read_vectors(const TileRows<C>&, Ahead&) const {}

  __device__ __forceinline__ OutputBits* outputs() const {
    return static_cast<OutputBits*>(tensors.o);
  }

  __device__ __forceinline__ long long place_of_row(int b, int h, int q) const {
    if constexpr (C::kBoundOutput) {
      const RowStrides& by = tensors.output_strides;
      return first_of(b, 0, by.row) + h * by.head + q * by.row;
    }
    return first_of(b, C::kOutputBatch, C::kOutputRow) + h * C::kOutputHead + q * C::kOutputRow;
  }

  // Two of a row of o. 0 for a factor of 0, whatever hidden values are.
  __device__ __forceinline__ unsigned scaled(float x, float y, float factor, bool exists,
                                             Largest& most) const {
    x *= factor, y *= factor;
    if constexpr (C::kAmaxOfOutputs) {
      const unsigned larger = max(bits_of(x), bits_of(y));
      if (exists && factor != 0) most.output = max(most.output, larger);
    }
    if constexpr (sizeof(OutputBits) == 1) x *= *tensors.scale_o, y *= *tensors.scale_o;
    const unsigned both = pair(Output{}, x, y);
    return factor == 0 ? 0 : both;
  }

  __device__ __forceinline__ unsigned scaled_pair(int group, int r, float factor, bool exists,
                                                  Largest& most) const {
    return scaled(o[4 * group + 2 * r], o[4 * group + 2 * r + 1], factor, exists, most);
  }

  // 8 columns of a row, from column `first` on, or those that there are.
  template <int kCount>
  __device__ __forceinline__ void store_columns(OutputBits* row, int first,
                                                const unsigned (&words)[kCount]) {
    static_assert(kCount == 2 * sizeof(OutputBits), "8 columns");
    OutputBits* const to = row + first * C::kOutputColumn;
    if constexpr (C::kAligned && kCount == 2) {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    } else if constexpr (C::kAligned) {
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
      constexpr int kOfWord = 8 / kCount, kBits = 32 / kOfWord;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (C::kStored % 8 != 0 && first + i >= C::kStored) continue;
        to[i * C::kOutputColumn] = (OutputBits)(words[i / kOfWord] >> i % kOfWord * kBits);
      }
    }
  }
};

// 16-bit floats.
template <class Base>
struct RowsOf16Bits : Base {
  using C = typename Base::C;
  using OutputBits = typename Base::OutputBits;
  using Largest = typename Base::Largest;
  using Base::Base;
  using Base::kFirstOfWidth, Base::kWidth, Base::lane, Base::exists, Base::outputs,
      Base::place_of_row, Base::scaled_pair, Base::store_columns;

  __device__ __forceinline__ void store_row(const TileRows<C>& at, int r, float factor,
                                            Largest& most, typename Base::Ahead&) {
    const bool exists = this->exists(at.b, at.q[r]);
    OutputBits* const row = outputs() + place_of_row(at.b, at.h[r], at.q[r]);
#pragma unroll
    for (int part = 0; part < kWidth / 32; ++part) {
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        pairs[i] = scaled_pair(4 * part + i, r, factor, exists, most);
      }
      exchange(pairs, lane);
      const int to = kFirstOfWidth + (4 * part + (lane & 3)) * 8;
      if (exists && to < C::kStored) store_columns(row, to, pairs);
    }
  }
};

// 8-bit floats.
template <class Base>
struct RowsOf8Bits : Base {
  using C = typename Base::C;
  using OutputBits = typename Base::OutputBits;
  using Largest = typename Base::Largest;
  using Base::Base;
  using Base::kWidth, Base::lane, Base::exists, Base::outputs, Base::place_of_row,
      Base::scaled_pair, Base::store_columns;

  // A lane exchanges pairs of bytes of two groups of 8 columns at once: it has 16 columns then.
  __device__ __forceinline__ void store_row(const TileRows<C>& at, int r, float factor,
                                            Largest& most, typename Base::Ahead&) {
    const bool exists = this->exists(at.b, at.q[r]);
    OutputBits* const row = outputs() + place_of_row(at.b, at.h[r], at.q[r]);
    constexpr int kGroups = kWidth / 8;
#pragma unroll
    for (int part = 0; part < (kGroups + 7) / 8; ++part) {
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int group = 8 * part + 2 * i;
        pairs[i] = 0;
        if (group >= kGroups) continue;
        pairs[i] = scaled_pair(group, r, factor, exists, most) |
                   scaled_pair(group + 1, r, factor, exists, most) << 16;
      }
      exchange(pairs, lane);
      const int to = (4 * part + (lane & 3)) * 16;
      if (!exists) continue;
      if (to < C::kStored) {
        store_columns(
            row, to,
            {__byte_perm(pairs[0], pairs[1], 0x5410), __byte_perm(pairs[2], pairs[3], 0x5410)});
      }
      if (to + 8 < C::kStored) {
        store_columns(
            row, to + 8,
            {__byte_perm(pairs[0], pairs[1], 0x7632), __byte_perm(pairs[2], pairs[3], 0x7632)});
      }
    }
  }
};

}  // namespace kernels
