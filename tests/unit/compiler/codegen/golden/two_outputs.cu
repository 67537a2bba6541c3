#include "attn/values.cuh"
extern "C" __global__ void attn_derive(int* out, int* out1) {
  long long i = attn_thread();
  if (i < 64) {
    const int row = (int)(i);
    const int v2 = attn_floordiv(row, 16);
    out[i] = (int)v2;
    return;
  }
  i -= 64;
  if (i < 384) {
    auto* out = out1;
    const int column = (int)(i % 96);
    const int h = (int)(i / 96);
    const int v2 = column & h;
    const bool v4 = v2 != (-3);
    out[i] = (int)v4;
    return;
  }
  i -= 384;
}
