/* Executable: a loaded plan. Part of attn.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "plan.h"
#include "runtime.h"

typedef struct attn_executable attn_executable;

/* Loads a plan; nothing is compiled. `options` may be NULL. `*executable` has one reference, owned
 * by the caller, and keeps what it needs of the runtime alive. Errors: io, plan_truncated,
 * plan_damaged, plan_foreign, plan_newer, plan_refused; plan_device and plan_version if the plan
 * does not fit this machine; invalid_argument if the file has no plan or several plans of the
 * direction, or if `sha256` is malformed; cuda, cudnn. Of a file for several GPUs, plans for others
 * than the runtime's device are ignored. */
ATTN_API attn_status attn_executable_load_file(attn_runtime* runtime, const char* path,
                                               const attn_load_options* options,
                                               attn_executable** executable, attn_error* error);
/* The same from the contents of a plan file, which may be freed after the call. */
ATTN_API attn_status attn_executable_load_memory(attn_runtime* runtime, const void* bytes,
                                                 size_t byte_count,
                                                 const attn_load_options* options,
                                                 attn_executable** executable, attn_error* error);
/* Like attn_executable_load_file, for a plan of an open file, which was already verified. */
ATTN_API attn_status attn_executable_load_plan(attn_runtime* runtime, const attn_plan* plan,
                                               size_t index, attn_executable** executable,
                                               attn_error* error);
/* Adds a reference, which the caller must release. Thread-safe. */
ATTN_API void attn_executable_retain(attn_executable* executable);
/* May be called from any thread and while bindings are in use; they remain valid. */
ATTN_API void attn_executable_release(attn_executable* executable);

typedef struct attn_executable_info {
  size_t size;
  const char* name;        /* name of the attention */
  const char* signature;   /* 32 hexadecimal digits; hash of program, GPU and cuDNN version */
  const char* target;      /* GPU it was compiled for: "h200" */
  int64_t workspace_bytes; /* device memory that an execute needs besides the tensors */
  attn_direction direction;
  int32_t reserved;
  size_t tensor_count;
  size_t param_count;
  /* Device memory that the executable holds, shared by all its bindings: precomputed tensors and
   * iota tensors for kernels. Excludes kernel code and cuDNN's own memory. */
  int64_t device_bytes;
} attn_executable_info;

/* Describes the plan. Strings are valid as long as the executable. Errors: invalid_argument. */
ATTN_API attn_status attn_executable_describe(const attn_executable* executable,
                                              attn_executable_info* info, attn_error* error);

/* `index` is less than tensor_count or param_count. `info` is valid as long as the executable. */
ATTN_API attn_status attn_executable_tensor(const attn_executable* executable, size_t index,
                                            attn_tensor_info* info, attn_error* error);
/* The same of a param. */
ATTN_API attn_status attn_executable_param(const attn_executable* executable, size_t index,
                                           attn_param_info* info, attn_error* error);
