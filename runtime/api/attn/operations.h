/* Operations beside attention, for paged caches: append and merge. Part of attn.h.
 *
 * Both enqueue one kernel and return: they do not allocate, synchronise, or keep an argument, and
 * may be captured into a CUDA graph, the first time too; the runtime must live until the last
 * launch of the graph. They may be called by any number of threads at once. What is given as an
 * address is device memory, which the caller owns; that it is, and how large, is not checked.
 * Errors: binding, for a tensor that does not fit, which the message names; invalid_argument for
 * other fields; unsupported on a GPU older than compute capability 8.0; cuda. Nothing is enqueued
 * then.
 *
 * Strides are in elements, and may have any value; those of dimensions of size 1 or less do not
 * matter. Kernels read and write up to 16 bytes at once, as addresses and strides allow. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime.h"
#include "tensor.h"

/* A tensor [rows, heads, width]. The elements of a row of a head are contiguous. All 0: absent. */
typedef struct attn_rows {
  void* data;
  attn_dtype dtype; /* f16, bf16, f32 */
  int32_t reserved; /* 0 */
  int64_t heads;
  int64_t width;
  int64_t row_stride;
  int64_t head_stride;
} attn_rows;

/* A pool of pages [pages, page_size, heads, width]; heads and width are those of its rows. The
 * elements of a row of a head are contiguous. */
typedef struct attn_pool {
  void* data;
  attn_dtype dtype; /* f16, bf16, f32, e4m3, e5m2 */
  int32_t reserved; /* 0 */
  int64_t page_stride;
  int64_t row_stride;
  int64_t head_stride;
  /* One f32, for pools of 8 bits; NULL: 1. What is stored is x / *descale, rounded to the nearest,
   * ties to even, and not beyond the largest number; attention multiplies it by the same value, its
   * descale_k or descale_v. (vLLM's k_scale and v_scale are this value.) */
  const float* descale;
} attn_pool;

/* cos and sin of rotary positions: tables [table_rows, rotary_dim / 2], a row for each position. */
typedef struct attn_rotary {
  const void* cos; /* NULL: nothing is rotated */
  const void* sin;
  attn_dtype dtype;           /* of both: f16, bf16, f32 */
  attn_dtype positions_dtype; /* i32, i64 */
  int64_t cos_stride;         /* of rows; the elements of a row are contiguous */
  int64_t sin_stride;
  int64_t table_rows;
  const void* positions; /* [rows], contiguous */
  /* Elements 0 .. rotary_dim - 1 of each head are rotated, the others are copied. Even, at most the
   * widths of k and q. */
  int64_t rotary_dim;
  int32_t interleaved; /* 0: elements i and i + rotary_dim / 2 are a pair; 1: 2 i and 2 i + 1 */
  int32_t reserved;    /* 0 */
} attn_rotary;

typedef struct attn_append_arguments {
  size_t size;
  int64_t rows; /* T; 0 does nothing */
  /* New keys and values, and where they go. Either may be absent, as v where values are a part of
   * the keys. Their heads and widths may differ. */
  attn_rows k;
  attn_rows v;
  attn_pool k_pool;
  attn_pool v_pool;
  int64_t pages;     /* in each pool */
  int64_t page_size; /* rows of a page; pages * page_size < 2^31 */
  /* i64 [rows], contiguous: row i goes to row slot % page_size of page slot / page_size. A negative
   * slot skips the row. Rows must go to different slots. */
  const int64_t* slot_mapping;
  /* Applied to k before it is rounded, in f32: x cos - y sin and y cos + x sin. */
  attn_rotary rotary;
  /* Rotated too, if it is given; a negative slot does not matter for it. `q_out` may be q itself.
   */
  attn_rows q;
  attn_rows q_out;
  /* NULL, or one i32, to which the number of rows is added that have a slot outside of the pool or
   * a position outside of the tables. Nothing is written for a row without a position, and nothing
   * to pools for one without a slot. */
  int32_t* outside;
} attn_append_arguments;

/* Writes new keys and values to pages of a cache, and rotates queries beside them. Types need not
 * be those of the pools: values are computed in f32 and rounded once, to the nearest. */
ATTN_API attn_status attn_append(attn_runtime* runtime, const attn_append_arguments* arguments,
                                 void* stream, attn_error* error);

/* Results of attentions of the same queries, each over a part of the keys: `count` of them, o
 * [count, rows, heads, width] and lse [count, rows, heads], f32. */
typedef struct attn_partial {
  attn_rows o;
  const float* lse; /* natural logarithm */
  int64_t lse_row_stride;
  int64_t lse_head_stride;
  int64_t count;      /* 0: absent */
  int64_t o_stride;   /* from one result to the next */
  int64_t lse_stride; /* the same for lse */
} attn_partial;

typedef struct attn_merge_arguments {
  size_t size;
  int64_t rows; /* 0 does nothing */
  attn_partial a;
  attn_partial b; /* may be absent */
  /* May be the memory of a result of a or b, with its type and strides; the same holds for `lse`.
   */
  attn_rows out;
  float* lse; /* [rows, heads], or NULL */
  int64_t lse_row_stride;
  int64_t lse_head_stride;
} attn_merge_arguments;

/* Merges results to the one over all of their keys: lse = log(sum of exp(lse_i)), o = sum of o_i
 * exp(lse_i - lse), computed in f32. A result whose lse is -inf or +inf (which some libraries write
 * for a row without keys) has no keys: its o is not read, and may be NaN. If none has keys, o is 0
 * and lse is -inf. An lse of NaN makes the row NaN. */
ATTN_API attn_status attn_merge(attn_runtime* runtime, const attn_merge_arguments* arguments,
                                void* stream, attn_error* error);
