/* Runs a binding with the tensors of Python objects in one step: their DLPack fields are compared
 * with those of the tensors that it was made for, and their addresses are put in their place.
 * Nothing is allocated and nothing is waited for, so streams may be captured into CUDA graphs.
 *
 * All functions need Python's global lock (ctypes.PyDLL). */
#ifndef ATTN_PYTHON_BOUND_CALL_H
#define ATTN_PYTHON_BOUND_CALL_H

#include "attn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_bound_call attn_bound_call;

/* What the first dimension of a tensor has in each run. */
enum {
  ATTN_COUNTS_NOTHING = 0,   /* as many as when the call was made */
  ATTN_COUNTS_ROWS = 1,      /* rows: the same number in all such tensors */
  ATTN_COUNTS_SEQUENCES = 2, /* sequences, likewise */
  ATTN_COUNTS_SEQUENCES_AND_1 = 3
};

/* A tensor of the call: its place in the binding's addresses, and the facts that it must have.
 * Strides of dimensions with one element or none do not matter. `fixed`, if it is not NULL, is the
 * address in every run; the object must then be the same as when the call was made (None).
 * `most_columns` above 0: rows of `least_columns` to so many adjacent elements, as page tables have
 * them, of any stride, which is set in the binding. */
typedef struct attn_bound_tensor {
  int32_t place;
  int32_t counts;
  int32_t rank;
  int32_t alignment; /* in bytes */
  const int64_t* dims;
  const int64_t* strides;
  void* fixed;
  int64_t least_columns, most_columns;
} attn_bound_tensor;

enum { ATTN_MOST_BOUND_TENSORS = 32 };

/* Tensors and sequences of a call. Addresses of the binding that no tensor has are as in
 * `addresses`, one for each tensor of its executable. */
typedef struct attn_bound_options {
  const attn_bound_tensor* tensors;
  size_t tensor_count;
  void* const* addresses;
  size_t address_count;
  int64_t least_sequences, most_sequences;
  int32_t device_type, device; /* of DLPack, of all tensors */
} attn_bound_options;

/* `examples`: a tuple of an object for each tensor; place -1 is an object that is absent in every
 * run (None); all others are tensors. Their types are those of all runs. The binding, which the
 * caller keeps alive, is used by nothing else. `exchange`: the DLPackExchangeAPI of the objects'
 * type, of major version 1. Errors: invalid_argument for another version, or an example that is no
 * tensor. */
ATTN_API attn_status attn_bound_call_create(attn_binding* binding, const void* exchange,
                                            const attn_bound_options* options, void* examples,
                                            attn_bound_call** call, attn_error* error);
ATTN_API void attn_bound_call_destroy(attn_bound_call* call);

/* Whether a run was captured into a CUDA graph, which uses the binding as long as it is launched.
 */
ATTN_API int32_t attn_bound_call_captured(const attn_bound_call* call);

/* Enqueues the binding on `stream` with `tensors`, a tuple like the examples. `schedule`: made for
 * these sequences before, or NULL. Returns an attn_status, or ATTN_CALL_UNFIT (call.h) if a tensor
 * is not as the examples were: nothing was enqueued then. */
ATTN_API int32_t attn_bound_call_run(attn_bound_call* call, void* tensors, attn_schedule* schedule,
                                     void* stream, attn_error* error);

#ifdef __cplusplus
}
#endif

#endif
