/* Arguments: tensors and params by name, in any order. Part of attn.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "tensor.h"

typedef struct attn_arguments attn_arguments;

/* Device memory owned by the caller. Name, dims and strides are copied. */
typedef struct attn_tensor {
  size_t size;
  const char* name;
  void* data;
  attn_dtype dtype;
  int32_t rank;
  const int64_t* dims;    /* `rank` of them */
  const int64_t* strides; /* `rank`, in elements; NULL: dense row-major */
} attn_tensor;

/* Names, shapes and addresses are checked against the plan at binding. Setting a name again
 * replaces its value. Arguments may be bound any number of times. For one thread at a time.
 *
 * Dims and strides must equal the plan's, with two exceptions. A page pool may have fewer pages.
 * The rows of a page table may have a larger first stride: each execute then copies them into
 * memory of the binding, so executes of that binding must not overlap. */
ATTN_API attn_status attn_arguments_create(attn_arguments** arguments, attn_error* error);
/* Frees the arguments. Bindings made from them remain valid. */
ATTN_API void attn_arguments_destroy(attn_arguments* arguments);
/* Sets a tensor, whose fields are copied. Errors: binding, for an invalid dtype or rank. */
ATTN_API attn_status attn_arguments_tensor(attn_arguments* arguments, const attn_tensor* tensor,
                                           attn_error* error);
/* `dl_tensor` is a DLTensor of dlpack.h (also the one inside a DLManagedTensor or
 * DLManagedTensorVersioned). It is read, not kept; its owner must keep the memory alive. Errors:
 * binding, naming the tensor, for memory that is not CUDA memory, a dtype that no plan has, vector
 * types (lanes), and inconsistent fields; at binding, for a device other than the runtime's. */
ATTN_API attn_status attn_arguments_dlpack(attn_arguments* arguments, const char* name,
                                           const void* dl_tensor, attn_error* error);
/* Sets only the address. A tensor that was not set before gets the plan's dtype, dims and strides.
 */
ATTN_API attn_status attn_arguments_address(attn_arguments* arguments, const char* name, void* data,
                                            attn_error* error);
/* Sets a param; `dtype` is f32 or i32. Binding checks that it is the plan's and can hold the value.
 * Errors: binding, for an invalid dtype. */
ATTN_API attn_status attn_arguments_param(attn_arguments* arguments, const char* name,
                                          attn_dtype dtype, double value, attn_error* error);
