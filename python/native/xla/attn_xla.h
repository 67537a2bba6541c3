/* Handlers by which programs of XLA (JAX) execute plans: one for each stage of XLA's foreign
 * function interface. They are plain functions of C, have no lock of Python and need nothing of
 * jaxlib: libattn_xla.so serves all its versions with FFI 0.2 or later. Register the three under
 * one name, with api_version 1 and platform CUDA.
 *
 * Attributes of a call:
 *   plan    text: the contents of a plan file in base64, so that an exported program has all that
 *           it needs. A plan is code: run only programs that you trust.
 *   index   s64: which plan of the file
 *   params  f64 array: the values of the plan's params, in its order
 * Arguments are the plan's inputs in its order, results its outputs and then, if the plan has a
 * workspace, u8[workspace_bytes + 256]. Buffers are dense, in the order of the plan's strides.
 * Values of tensors are not checked: XLA writes them when nobody can wait for them.
 *
 * instantiate decodes the plan, initialize loads it on a device (the same plan once, in the
 * runtime's cache), execute enqueues it on the stream of the call. Executes may be captured into
 * CUDA graphs. What is loaded is freed with XLA's executable. Any number of threads may be in them
 * at once; a lock is taken only to load. Errors begin with "[attn STATUS] ", a name of
 * attn_status_name. */
#ifndef ATTN_XLA_H
#define ATTN_XLA_H

#include "attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `call` is an XLA_FFI_CallFrame. They return an XLA_FFI_Error, NULL on success. */
ATTN_API void* attn_xla_instantiate(void* call);
ATTN_API void* attn_xla_initialize(void* call);
ATTN_API void* attn_xla_execute(void* call);

#ifdef __cplusplus
}
#endif

#endif
