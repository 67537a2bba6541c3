/* Calls an executable with tensors of Python objects in one step: their DLPack fields are compared
 * with the plan, outputs are allocated by the framework, and the kernels are enqueued on its
 * current stream. Needs neither Python's nor a framework's headers: it uses attn.h, DLPack's
 * exchange functions and a few of Python's stable ABI, so that one library serves all versions.
 *
 * All functions need Python's global lock (ctypes.PyDLL). */
#ifndef ATTN_PYTHON_CALL_H
#define ATTN_PYTHON_CALL_H

#include "attn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_call attn_call;

/* A call does not apply: a tensor is not as the plan expects it, or the framework could not convert
 * or allocate one. Nothing was enqueued; Python's error may be set. */
enum { ATTN_CALL_UNFIT = -1 };

/* `exchange` is the DLPackExchangeAPI of the tensors' type, of major version 1; it and the
 * executable, of which the call keeps a reference, must be of CUDA device `device`. A workspace of
 * more than `most_kept_workspace` bytes is allocated for each run. Errors: invalid_argument for
 * another version. */
ATTN_API attn_status attn_call_create(attn_executable* executable, const void* exchange,
                                      int32_t device, uint64_t most_kept_workspace,
                                      attn_call** call, attn_error* error);
/* The device must have finished all runs. */
ATTN_API void attn_call_destroy(attn_call* call);

/* The function of Python that runs the call, a new reference, or NULL with Python's error set. It
 * is builtin, so that ctypes converts nothing, and owns the call. Its arguments are a tuple of
 * objects, the executable's tensors that are not outputs, in its order, and a tuple of numbers, the
 * values of its params. It returns a tuple of the outputs, or None: a tensor is not as the plan
 * expects it or none of `types` (a tuple of types), the stream is being captured, whose graph needs
 * a binding of its own, or the framework could not convert or allocate a tensor. Then nothing was
 * enqueued, and the same in Python says why. After an error of attn_binding_create or
 * attn_binding_execute it calls `failed` with the status, which raises; attn_call_error says more
 * of it. One thread at a time, which the global lock ensures. */
ATTN_API void* attn_call_function(attn_call* call, void* types, void* failed);
ATTN_API attn_error* attn_call_error(const attn_call* call);

#ifdef __cplusplus
}
#endif

#endif
