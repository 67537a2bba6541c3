/* C API of libattn, the attnc runtime: load a plan once, bind tensors once, execute many times.
 * C99. This is the library's only binary interface; attn.hpp wraps it for C++.
 *
 *   attn_runtime* runtime = NULL;
 *   attn_executable* executable = NULL;
 *   attn_runtime_open(NULL, &runtime, error);
 *   attn_executable_load_file(runtime, "causal.attnplan", NULL, &executable, error);
 *   .. attn_arguments_tensor(arguments, &q, error) ..
 *   attn_binding_create(executable, arguments, NULL, &binding, error);
 *   attn_binding_execute(binding, stream, error);
 *
 * Errors. A function that can fail returns an attn_status and puts the details in `error`, which
 * the caller owns and which may be NULL. Outputs are written only on ATTN_STATUS_OK. A NULL handle
 * is ATTN_STATUS_INVALID_ARGUMENT; functions that destroy, release or close ignore NULL. No C++
 * exception leaves the library.
 *
 * Threads. attn_runtime and attn_executable are immutable and reference-counted. They, attn_plan
 * and attn_picker may be used by any number of threads at once; all other handles by one thread at
 * a time. The library has no global state, so several users in one process are independent.
 *
 * Structures that begin with `size` must have it set to their sizeof and all unused fields set to
 * 0, the default: `attn_bind_options options = {.size = sizeof options};`. The size lets a newer
 * library see which fields the caller has; an older library rejects nonzero fields that it does not
 * know. The library fills output structures only up to `size`. `reserved` fields must be 0.
 * Structures grow only at their end; for arrays of structures the caller passes the element size.
 *
 * Streams are CUstream or cudaStream_t as void*; NULL is the default stream. Device addresses are
 * void*. No call needs a current CUDA context, and none changes the current one, except that a
 * thread that had none has the device's primary context afterwards. Strings are UTF-8,
 * NUL-terminated, and owned by the handle that returned them. */
#ifndef ATTN_H
#define ATTN_H

#include "attn/arguments.h"
#include "attn/binding.h"
#include "attn/distributed.h"
#include "attn/error.h"
#include "attn/executable.h"
#include "attn/graph.h"
#include "attn/memory.h"
#include "attn/operations.h"
#include "attn/picker.h"
#include "attn/plan.h"
#include "attn/runtime.h"
#include "attn/schedule.h"
#include "attn/tensor.h"
#include "attn/version.h"

#endif
