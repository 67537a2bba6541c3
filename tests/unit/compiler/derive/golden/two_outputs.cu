#include "attn_derive_1.h"
extern "C" __global__ void attn_derive(int* o_rows, int* o_odd) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 64) {
    const int row = (int)(i);
    const int v2 = attn_floordiv(row, 16);
    o_rows[i] = (int)v2;
    return;
  }
  i -= 64;
  if (i < 384) {
    const int column = (int)(i % 96);
    const int h = (int)(i / 96);
    const int v2 = column & h;
    const bool v4 = v2 != (-3);
    o_odd[i] = (int)v4;
    return;
  }
  i -= 384;
}
