/* Plan: the contents of a plan file; needs no GPU. executable.h loads it on one. Part of attn.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "tensor.h"

typedef int32_t attn_direction;
enum { ATTN_DIRECTION_FORWARD = 0, ATTN_DIRECTION_BACKWARD = 1 };

/* Called with the whole contents of a plan file before any of it is parsed, on the calling thread.
 * Return 0 to accept; any other value rejects the file with ATTN_STATUS_PLAN_REFUSED and appears in
 * the message. */
typedef int32_t (*attn_verify_callback)(void* user, const void* bytes, size_t byte_count);

/* A plan is code: its kernels run on the device with the privileges of the process, so load only
 * plans you trust. The checksums in a file detect damage, not tampering. */
typedef struct attn_load_options {
  size_t size;
  attn_direction direction; /* which plan of a training pair to load */
  int32_t reserved;         /* 0 */
  /* Expected SHA-256 of the whole file: 64 hexadecimal digits, as sha256sum prints. Any other file
   * is rejected with ATTN_STATUS_PLAN_REFUSED. NULL: not checked. */
  const char* sha256;
  attn_verify_callback verify; /* may be NULL; called after the hash check */
  void* verify_user;
} attn_load_options;

/* The plans of a file. Needs neither CUDA nor cuDNN. Immutable: any number of threads may read it.
 */
typedef struct attn_plan attn_plan;

/* Opens a plan file; close it with attn_plan_close. `options` may be NULL; only its `sha256` and
 * `verify` are used. Errors: io, plan_truncated, plan_damaged, plan_foreign, plan_newer,
 * plan_refused; invalid_argument if `sha256` is malformed. */
ATTN_API attn_status attn_plan_open(const char* path, const attn_load_options* options,
                                    attn_plan** plan, attn_error* error);
/* The same from the contents of a plan file, which may be freed after the call. */
ATTN_API attn_status attn_plan_open_memory(const void* bytes, size_t byte_count,
                                           const attn_load_options* options, attn_plan** plan,
                                           attn_error* error);
/* Frees the plan and what describes it. Executables loaded from it remain valid. */
ATTN_API void attn_plan_close(attn_plan* plan);

typedef struct attn_plan_info {
  size_t size;
  const char* name;      /* name of the attention */
  const char* signature; /* 32 hexadecimal digits, as in attn_executable_info */
  const char* target;    /* GPU it was compiled for: "h200" */
  const char* spec;      /* source text */
  int32_t sm;            /* required compute capability * 10 */
  attn_direction direction;
  int64_t cudnn_version;   /* required version: 91900 for 9.19.0; 0: none */
  int64_t workspace_bytes; /* as in attn_executable_info */
  int64_t device_bytes;
  size_t tensor_count;
  size_t param_count;
  const int64_t* sizes; /* ATTN_DIM_COUNT, by attn_dim */
  uint32_t padded;      /* as in attn_shape */
  int32_t reserved;
} attn_plan_info;

/* Number of plans in the file: one or a training pair, for one or several shapes. 0 for NULL. */
ATTN_API size_t attn_plan_count(const attn_plan* plan);
/* `index` is less than attn_plan_count. `info` is valid until the plan is closed. */
ATTN_API attn_status attn_plan_describe(const attn_plan* plan, size_t index, attn_plan_info* info,
                                        attn_error* error);
/* `tensor` is less than tensor_count, `param` less than param_count. */
ATTN_API attn_status attn_plan_tensor(const attn_plan* plan, size_t index, size_t tensor,
                                      attn_tensor_info* info, attn_error* error);
/* The same of a param. */
ATTN_API attn_status attn_plan_param(const attn_plan* plan, size_t index, size_t param,
                                     attn_param_info* info, attn_error* error);
