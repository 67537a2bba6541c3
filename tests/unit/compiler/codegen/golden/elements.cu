#include "attn/values.cuh"
extern "C" __global__ void attn_derive(float* out, const unsigned short* t_half, const unsigned short* t_brain, const float* t_single, const double* t_full, const signed char* t_tiny, const unsigned char* t_byte, const int* t_word, const long long* t_big, const unsigned char* t_flag, float p_scale) {
  long long i = attn_thread();
  if (i >= 49152) return;
  const int column = (int)(i % 96);
  const int row = (int)(i / 96 % 64);
  const int h = (int)(i / 6144 % 4);
  const int b = (int)(i / 24576);
  const double v0 = (double)p_scale;
  const double v2 = attn_f16(t_half[(long long)column]);
  const double v3 = v0 + v2;
  const double v4 = attn_bf16(t_brain[(long long)column]);
  const double v5 = v3 + v4;
  const double v6 = (double)t_single[(long long)column];
  const double v7 = v5 + v6;
  const double v8 = (double)t_full[(long long)column];
  const double v9 = v7 + v8;
  const int v11 = (int)t_tiny[(long long)row];
  const double v12 = (double)v11;
  const double v13 = v9 + v12;
  const int v14 = (int)t_byte[(long long)row];
  const double v15 = (double)v14;
  const double v16 = v13 + v15;
  const int v17 = (int)t_word[(long long)row];
  const double v18 = (double)v17;
  const double v19 = v16 + v18;
  const long long v20 = t_big[(long long)row];
  const double v21 = (double)v20;
  const double v22 = v19 + v21;
  const bool v25 = t_flag[((long long)b) * 4 + h] != 0;
  const double v27 = v25 ? v22 : (-0.5);
  out[i] = (float)v27;
}
