// A table that scores of the forward read, in shared memory (kTables).
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// None.
template <class Base>
struct NoTable : Base {
  using Base::Base;

  __device__ __forceinline__ void begin_table() const {}
  __device__ __forceinline__ void read_table(int, float (&)[8]) const {}
  __device__ __forceinline__ void end_table() const {}
};

// One of 16-bit floats.
template <class Base>
struct NarrowTable : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::table, Base::first_row, Base::lane, Base::release;

  __device__ __forceinline__ void begin_table() const {
    wait(stages.table_full(table.stage), table.parity);
  }

  // The table's elements of 16 columns: pairs for this thread's two rows and 8 columns, then the
  // next 8. Each lane gives the address of a row of one of four matrices of 8 x 8.
  __device__ __forceinline__ void read_table(int part, float (&entries)[8]) const {
    const int of_tile = first_row - lane / 4 + (lane & 15);
    const int row = of_tile / (C::kPack / C::kTablePack);
    const int vector = (lane >> 4 ^ row & 7) * 16 ^ part % 4 * 32;
    unsigned pairs[4];
    load_matrices(pairs,
                  stages.table(table.stage) + row * 128 + vector + part / 4 * S::kTablePanel);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      entries[j] = C::Entry::widen((unsigned short)(pairs[j / 2] >> (j & 1) * 16));
    }
  }

  __device__ __forceinline__ void end_table() {
    release(stages.table_full(table.stage));
    table.next();
  }
};

// One of 16-bit floats, all columns of a tile's rows (kWalks).
template <class Base>
struct HeldTable : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::block, Base::first_row, Base::lane;

  __device__ __forceinline__ void begin_table() const {}
  // As NarrowTable reads it. Columns past the last are hidden, so any will do.
  __device__ __forceinline__ void read_table(int part, float (&entries)[8]) const {
    const int row = first_row - lane / 4 + (lane & 15);
    const int column = (int)(block & kKeyBits) + 16 * part;
    const int panel = column / 64 < S::kTablePanels ? column / 64 : S::kTablePanels - 1;
    const int vector = (lane >> 4 ^ row & 7) * 16 ^ column / 16 % 4 * 32;
    unsigned pairs[4];
    load_matrices(pairs, stages.table(0) + row * 128 + vector + panel * S::kTablePanel);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      entries[j] = C::Entry::widen((unsigned short)(pairs[j / 2] >> (j & 1) * 16));
    }
  }
  __device__ __forceinline__ void end_table() const {}
};

// One of f32.
template <class Base>
struct WideTable : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::table, Base::first_row, Base::first_column, Base::release;

  __device__ __forceinline__ void begin_table() const {
    wait(stages.table_full(table.stage), table.parity);
  }

  __device__ __forceinline__ void read_table(int part, float (&entries)[8]) const {
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const int row = (first_row + (j & 2) * 4) / (C::kPack / C::kTablePack);
      const int column = 16 * part + j / 4 * 8 + first_column;
      const float2 two = load_two(stages.table(table.stage) + row * S::kTablePitch + column * 4);
      entries[j] = two.x, entries[j + 1] = two.y;
    }
  }

  __device__ __forceinline__ void end_table() {
    __syncwarp();  // loads of other lanes may still read it
    release(stages.table_full(table.stage));
    table.next();
  }
};

}  // namespace kernels
