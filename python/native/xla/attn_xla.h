/* Handlers by which programs of XLA (JAX) execute plans: one for each stage of XLA's foreign
 * function interface. They are plain functions of C, have no lock of Python and need nothing of
 * jaxlib: libattn_xla.so serves its versions since 0.8, with FFI 0.1 and later. Register the three
 * under one name, with api_version 1 and platform CUDA.
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

/* A handler for arrays of the CPU, which a function of the process computes, such as the dense
 * reference by Python. Its one attribute is text, `request`, which says what to compute. */
ATTN_API void* attn_xla_compute(void* call);

/* A dense array of a call, row-major. */
typedef struct attn_xla_array {
  void* data;
  const int64_t* dims;
  int32_t rank;
  attn_dtype dtype;
} attn_xla_array;

/* A call of attn_xla_compute, valid until the function returns. */
typedef struct attn_xla_request {
  const char* text; /* the attribute, `text_size` bytes */
  size_t text_size;
  const attn_xla_array* arguments;
  size_t argument_count;
  const attn_xla_array* results; /* to be written */
  size_t result_count;
  char* message; /* of a failure: at most `message_size` bytes with the terminating zero */
  size_t message_size;
} attn_xla_request;

/* Returns an attn_status. Called by any number of threads at once. */
typedef attn_status (*attn_xla_computer)(const attn_xla_request* request);

/* Sets the function: NULL is the default, and then calls fail. Returns when no call of the one
 * before runs any more, so not called by such a function. */
ATTN_API void attn_xla_set_computer(attn_xla_computer computer);

#ifdef __cplusplus
}
#endif

#endif
