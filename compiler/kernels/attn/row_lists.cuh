// Lists of row blocks (backward.cuh) for masks that read tensors, made by the GPU: those of
// key_lists.cuh, of an attention whose rows are the columns.
#pragma once

#include "attn/key_lists.cuh"

namespace kernels {

template <class E>
struct Transposed {
  static constexpr bool kIntervals = E::kIntervals, kMasksByIndices = false;
  static constexpr int kRowValues = E::kColumnValues, kColumnValues = E::kRowValues;

  const E& of;

  __device__ bool mask(int b, int h, int row, int column) const {
    return of.mask(b, h, column, row);
  }
  __device__ void row_values(int b, int h, int row, int* values) const {
    of.column_values(b, h, row, values);
  }
  __device__ void column_values(int b, int h, int column, int* values) const {
    of.row_values(b, h, column, values);
  }
  __device__ Interval visible(int b, int h, const Interval* rows, const Interval* columns) const {
    return of.visible(b, h, columns, rows);
  }
};

}  // namespace kernels
