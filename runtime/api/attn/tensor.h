/* What tensors and params are: types, roles, dimensions. Part of attn.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "version.h"

typedef int32_t attn_dtype;
enum {
  ATTN_DTYPE_F16 = 1,
  ATTN_DTYPE_BF16 = 2,
  ATTN_DTYPE_F32 = 3,
  ATTN_DTYPE_F64 = 4,
  ATTN_DTYPE_I8 = 5,
  ATTN_DTYPE_U8 = 6,
  ATTN_DTYPE_I32 = 7,
  ATTN_DTYPE_I64 = 8,
  ATTN_DTYPE_BOOL = 9, /* one byte, 0 or 1 */
  /* Floats of 8 bits, of the OCP specification: e4m3 has no infinity and ends at 448. */
  ATTN_DTYPE_E4M3 = 10,
  ATTN_DTYPE_E5M2 = 11,
  ATTN_DTYPE_E8M0 = 12 /* the scale of a block: 2^(byte - 127), 255 is NaN */
};

ATTN_API const char* attn_dtype_name(attn_dtype dtype); /* "bf16", "bool"; or "unknown" */
ATTN_API size_t attn_dtype_bytes(attn_dtype dtype);     /* per element; 0 if not a dtype */

/* In a backward plan, `saved` is an output of the forward, and `cotangent` the gradient of the loss
 * with respect to o (`do`) or, where the spec has `lse` in its `grad` clause, to lse (`dlse`). */
typedef int32_t attn_role;
enum {
  ATTN_ROLE_QUERY = 1,
  ATTN_ROLE_KEY = 2,
  ATTN_ROLE_VALUE = 3,
  ATTN_ROLE_CAPTURED = 4,
  ATTN_ROLE_OUTPUT = 5,
  ATTN_ROLE_STATS = 6,
  ATTN_ROLE_CONTROL = 7, /* offsets, page tables, seeds */
  ATTN_ROLE_SAVED = 8,
  ATTN_ROLE_COTANGENT = 9,
  ATTN_ROLE_GRADIENT = 10,
  ATTN_ROLE_AMAX = 11 /* one f32: the largest magnitude of what an 8-bit tensor holds */
};
/* Its name, such as "query"; "unknown" if `role` is not a role. Static text: nobody frees it. */
ATTN_API const char* attn_role_name(attn_role role);

/* A tensor to bind. Dims are in logical order: q and o [B,Hq,Sq,D], k and v [B,Hkv,Skv,D], lse
 * [B,Hq,Sq], captured tensors as declared. Strides are in elements. Pointers are valid as long as
 * the handle that returned them. */
typedef struct attn_tensor_info {
  size_t size;
  const char* name;
  attn_role role;
  attn_dtype dtype;
  int32_t is_output; /* 1: executes write it */
  int32_t rank;
  const int64_t* dims;
  const int64_t* strides;
  int64_t alignment; /* of the address, in bytes */
  /* "", or the control tensor that locates its rows: a page table (then dims are those of the page
   * pool) or cu_seqlens (then the batch stride is unused). */
  const char* addressed_by;
  /* Bytes to allocate: from the first element to the end of the last, gaps included; 0 if there are
   * no elements. With cu_seqlens, the rows in use are enough; with a page table, the pages in use.
   */
  int64_t bytes;
  /* 1: strides need not be those above, and a pool may have any number of pages: a binding takes
   * those that it is given, whose elements of a row are adjacent, and whose other strides are
   * multiples of 16 bytes (of a page table: its rows do not overlap). */
  int32_t bound_strides;
  int32_t reserved;
} attn_tensor_info;

/* A scalar to bind. */
typedef struct attn_param_info {
  size_t size;
  const char* name;
  attn_dtype dtype; /* f32 or i32 */
  int32_t reserved;
} attn_param_info;

typedef int32_t attn_dim;
enum {
  ATTN_DIM_B = 0,
  ATTN_DIM_HQ = 1,
  ATTN_DIM_HKV = 2,
  ATTN_DIM_SQ = 3,
  ATTN_DIM_SKV = 4,
  ATTN_DIM_DQK = 5,
  ATTN_DIM_DV = 6
};
#define ATTN_DIM_COUNT 7
ATTN_API const char* attn_dim_name(attn_dim dim); /* "B", "Hkv"; "unknown" */

typedef struct attn_dim_size {
  attn_dim dim;
  int32_t reserved; /* 0 */
  int64_t size;
} attn_dim_size;

/* The sizes a plan is for. Embedded in other structures, so it never grows. */
typedef struct attn_shape {
  int64_t sizes[ATTN_DIM_COUNT]; /* by attn_dim */
  /* Bit `1 << dim` is set for each of B, Sq and Skv for which the plan also serves smaller sizes.
   */
  uint32_t padded;
  int32_t reserved;
} attn_shape;
