/* Runtime: a device, its cuDNN, and a cache of executables. Part of attn.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "error.h"

typedef struct attn_runtime attn_runtime;

typedef int32_t attn_log_level;
enum { ATTN_LOG_DEBUG = 0, ATTN_LOG_INFO = 1, ATTN_LOG_WARNING = 2, ATTN_LOG_ERROR = 3 };

/* Called on the thread where the event occurs, possibly from several threads at once; never from a
 * successful execute. `message` is valid during the call. */
typedef void (*attn_log_callback)(void* user, attn_log_level level, const char* message);

/* Application allocator for device memory: workspaces and the memory that executables and bindings
 * hold. cuDNN's handles and kernel code still allocate from the driver. Called from any thread,
 * possibly several at once, with the device's context current. Must not call the library.
 *
 * Allocate returns an address on the runtime's device, aligned to 256 bytes, or NULL if out of
 * memory. With `stream` NULL the memory may be used at once on any stream: earlier work must no
 * longer use it. Otherwise `stream` is the stream of an execute with ATTN_WORKSPACE_STREAM_ORDERED
 * (cudaStreamLegacy for the default stream), and only later work on that stream uses the memory;
 * such an execute cannot be captured into a CUDA graph and then returns
 * ATTN_STATUS_INVALID_ARGUMENT. Free receives the `bytes` and `stream` of the allocation. With a
 * stream, work enqueued there may still use the memory; with NULL nothing uses it, because the
 * library has waited for the device. If it cannot, because a stream is being captured, it keeps the
 * memory, and frees it with the next or at the end of the runtime; still captured then: never. */
typedef void* (*attn_allocate_callback)(void* user, size_t bytes, void* stream);
typedef void (*attn_free_callback)(void* user, void* memory, size_t bytes, void* stream);

typedef struct attn_runtime_options {
  size_t size;
  const char* cudnn_folder; /* with libcudnn.so.9; NULL: $ATTN_CUDNN_DIR or default paths */
  int32_t device;           /* CUDA ordinal */
  /* Maximum number of threads inside an execute at once; each needs a cuDNN handle, and further
   * threads wait for one. At most 64; 0: 16. */
  int32_t most_handles;
  /* Limits of the executable cache, which makes loading the same plan again a look-up. The least
   * recently used executable is evicted first; those in use stay, and count. */
  uint64_t cache_entries; /* 0: 256 */
  uint64_t cache_bytes;   /* kernels, plans, and device memory of executables; 0: 1 GiB */
  /* Nonzero: binding does not check captured tensors and params for values that make a score
   * index outside a tensor or divide by 0. Such scores are then unspecified; nothing outside a
   * tensor is read in either case. */
  int32_t skip_value_checks;
  int32_t reserved;      /* 0 */
  attn_log_callback log; /* may be NULL */
  void* log_user;
  /* May be NULL. Called once with log_user when `log` will not be called again; if opening fails,
   * before attn_runtime_open returns. */
  void (*log_release)(void* user);
  /* Set both or neither; NULL: the driver allocates. */
  attn_allocate_callback allocate_memory;
  attn_free_callback free_memory;
  void* allocator_user;
  /* May be NULL. Called once with allocator_user when neither will be called again, like
   * log_release. */
  void (*allocator_release)(void* user);
} attn_runtime_options;

/* Opens a device with its primary context (the one that the CUDA runtime uses). cuDNN is loaded by
 * the first plan that has steps of its, or by attn_runtime_describe. `options` may be NULL.
 * `*runtime` has one reference, owned by the caller. Errors: cuda. */
ATTN_API attn_status attn_runtime_open(const attn_runtime_options* options, attn_runtime** runtime,
                                       attn_error* error);
/* Adds a reference, which the caller must release. Thread-safe. */
ATTN_API void attn_runtime_retain(attn_runtime* runtime);
/* Releasing the last reference closes the runtime; executables still held remain valid. */
ATTN_API void attn_runtime_release(attn_runtime* runtime);

typedef struct attn_runtime_info {
  size_t size;
  const char* device_name;   /* "NVIDIA H200" */
  int32_t device;            /* CUDA ordinal */
  int32_t sm;                /* compute capability * 10: 90 for Hopper */
  int64_t cudnn_version;     /* 91900 for 9.19.0; 0 if cuDNN cannot be loaded: the log says why */
  const char* cudnn_library; /* path of the library, or "" */
} attn_runtime_info;

/* Describes the device, and the cuDNN that is used, which this loads. Strings are valid as long as
 * the runtime. Errors: invalid_argument. */
ATTN_API attn_status attn_runtime_describe(const attn_runtime* runtime, attn_runtime_info* info,
                                           attn_error* error);

/* Counts of executable requests since the runtime was opened or the counters were reset. */
typedef struct attn_cache_counters {
  size_t size;
  uint64_t hit;      /* served from the cache */
  uint64_t miss;     /* loaded */
  uint64_t wait;     /* waited for another thread to load the same plan */
  uint64_t negative; /* answered with a cached error */
  uint64_t evict;    /* executables evicted */
  uint64_t entries;  /* executables cached now; not reset */
  uint64_t bytes;    /* their size; not reset */
} attn_cache_counters;

/* If `reset` is nonzero, also resets the counters to 0; no concurrent count is lost. */
ATTN_API attn_status attn_runtime_cache_counters(attn_runtime* runtime, int32_t reset,
                                                 attn_cache_counters* counters, attn_error* error);
/* Empties the cache; executables still held remain valid. */
ATTN_API attn_status attn_runtime_cache_clear(attn_runtime* runtime, attn_error* error);
