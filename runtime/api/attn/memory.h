/* Conveniences for small programs and tests that build without CUDA. Applications may use their own
 * streams and memory instead. Part of attn.h. */
#pragma once

#include <stddef.h>

#include "runtime.h"
#include "tensor.h"

typedef struct attn_memory attn_memory;
typedef struct attn_stream attn_stream;

/* Allocates device memory, aligned to 256 bytes and uninitialized. Errors: cuda. */
ATTN_API attn_status attn_memory_allocate(const attn_runtime* runtime, size_t bytes,
                                          attn_memory** memory, attn_error* error);
/* Frees the memory, once work that may use it is done. */
ATTN_API void attn_memory_free(attn_memory* memory);
ATTN_API void* attn_memory_data(const attn_memory* memory); /* device address; NULL for NULL */
/* Copies `bytes` of host memory to the device memory from byte `offset` on. Synchronous, behind
 * what the default stream was given before; it does not wait for kernels on other streams. Not
 * while this thread captures its own default stream (cudaStreamPerThread). Errors: invalid_argument
 * if out of range, cuda. */
ATTN_API attn_status attn_memory_upload(attn_memory* memory, size_t offset, const void* source,
                                        size_t bytes, attn_error* error);
/* The same from the device to the host. */
ATTN_API attn_status attn_memory_download(const attn_memory* memory, size_t offset, void* target,
                                          size_t bytes, attn_error* error);

/* Creates a stream that does not synchronize with the default stream. */
ATTN_API attn_status attn_stream_create(const attn_runtime* runtime, attn_stream** stream,
                                        attn_error* error);
/* Destroys the stream. Work on it is done all the same. */
ATTN_API void attn_stream_destroy(attn_stream* stream);
ATTN_API void* attn_stream_handle(const attn_stream* stream); /* CUstream; NULL for NULL */
/* Waits for all work on the stream. Errors: cuda, also of kernels that failed before. */
ATTN_API attn_status attn_stream_synchronize(const attn_stream* stream, attn_error* error);

/* Converts `count` contiguous host elements from f32. Floats round to nearest even. Errors:
 * invalid_argument for a dtype or value that cannot be converted. */
ATTN_API attn_status attn_elements_from_f32(attn_dtype dtype, const float* values, size_t count,
                                            void* elements, attn_error* error);
/* The same from elements to f32. */
ATTN_API attn_status attn_elements_to_f32(attn_dtype dtype, const void* elements, size_t count,
                                          float* values, attn_error* error);
