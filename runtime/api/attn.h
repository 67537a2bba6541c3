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

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header. It and the library's soname increase only when something existing is
 * changed or removed. */
#define ATTN_API_VERSION 1

ATTN_API int32_t attn_api_version(void); /* ATTN_API_VERSION of the library */
ATTN_API const char* attn_version(void); /* of the library, three numbers: "1.2.3" */

/* ---- Status and errors ---- */

typedef int32_t attn_status;
enum {
  ATTN_STATUS_OK = 0,
  ATTN_STATUS_INVALID_ARGUMENT = 1, /* the call is not valid */
  ATTN_STATUS_INVALID_SPEC = 2,     /* the spec has errors */
  ATTN_STATUS_UNSUPPORTED = 3,      /* valid, but not supported by this target and cuDNN */
  ATTN_STATUS_BINDING = 4,          /* a tensor or param does not fit the plan */
  ATTN_STATUS_CUDA = 5,             /* the driver failed or is missing: see
                                     * attn_error_cuda_failure */
  ATTN_STATUS_CUDNN = 6,            /* cuDNN failed or is missing */
  ATTN_STATUS_WORKER = 7,           /* a build process or compile worker failed */
  ATTN_STATUS_IO = 8,               /* a file could not be read or written */
  ATTN_STATUS_MISMATCH = 9,         /* results differ */
  ATTN_STATUS_PLAN_TRUNCATED = 10,  /* the plan file ends too early */
  ATTN_STATUS_PLAN_DAMAGED = 11,    /* its checksums or contents are inconsistent */
  ATTN_STATUS_PLAN_FOREIGN = 12,    /* it is not a plan file, or of a development version */
  ATTN_STATUS_PLAN_NEWER = 13,      /* it was written in a newer format */
  ATTN_STATUS_PLAN_VERSION = 14,    /* it was compiled for another cuDNN version */
  ATTN_STATUS_PLAN_DEVICE = 15,     /* it was compiled for another GPU architecture */
  ATTN_STATUS_INTERNAL = 16,        /* a bug in this library */
  ATTN_STATUS_OUT_OF_MEMORY = 17,   /* host memory; device memory is ATTN_STATUS_CUDA */
  ATTN_STATUS_PLAN_SHAPE = 18,      /* no plan serves these sizes */
  ATTN_STATUS_PLAN_PENDING = 19,    /* the plan for these sizes is still being built */
  ATTN_STATUS_PLAN_REFUSED = 20,    /* its hash differs, or `verify` rejected it */
  ATTN_STATUS_NCCL = 21             /* NCCL failed or is missing, or a rank does not answer */
};

/* Its name, such as "plan_version"; "unknown" if `status` is not a status. Static text: nobody
 * frees it. */
ATTN_API const char* attn_status_name(attn_status status);
/* The exit code of attnc for this status: 0 ok, 1 a spec with errors, 2 usage, or arguments that do
 * not fit, 3 unsupported, 4 CUDA, cuDNN, NCCL, or the system, 5 results that differ, 6 an
 * unreadable plan, 70 a bug. */
ATTN_API int32_t attn_status_exit_code(attn_status status);

/* Details of the last call that received it. Reusable: a successful call resets it to
 * ATTN_STATUS_OK with no message. Its strings are valid until the next call that receives it. For
 * one thread at a time. */
typedef struct attn_error attn_error;

ATTN_API attn_error* attn_error_create(void); /* NULL if out of host memory */
ATTN_API void attn_error_destroy(attn_error* error);
/* A NULL error reads as ATTN_STATUS_OK, with no notes and empty strings. */
ATTN_API attn_status attn_error_status(const attn_error* error);
ATTN_API const char* attn_error_message(const attn_error* error); /* one sentence, no period */
ATTN_API size_t attn_error_note_count(const attn_error* error);
/* What was tried, text from cuDNN or the driver, and hints; "" if `index` is out of range. */
ATTN_API const char* attn_error_note(const attn_error* error, size_t index);
/* JSON, or "". For a failed cuDNN call {"call", "status", "reason"}, plus the stage and location;
 * for a failed CUDA call {"cuda", "name", "kind"}. */
ATTN_API const char* attn_error_payload(const attn_error* error);
/* The message, followed by a line "  note: .." for each note. */
ATTN_API const char* attn_error_text(const attn_error* error);

/* Classifies CUDA failures by what the application can do. */
typedef int32_t attn_cuda_failure;
enum {
  ATTN_CUDA_NONE = 0,          /* no error, or not reported by the driver */
  ATTN_CUDA_OTHER = 1,         /* see attn_error_cuda_code */
  ATTN_CUDA_OUT_OF_MEMORY = 2, /* device memory: free some, then retry */
  /* Sticky: a kernel of this process failed, and every later CUDA call fails too. Restart the
   * process. */
  ATTN_CUDA_FAULT = 3,
  ATTN_CUDA_NO_DRIVER = 4 /* no driver, an unusable one, or no device */
};
/* How the driver failed in the call; ATTN_CUDA_NONE if it did not, and for NULL. */
ATTN_API attn_cuda_failure attn_error_cuda_failure(const attn_error* error);
/* The driver's CUresult (the same number as cudaError_t); 0 if the driver reported none or is
 * missing. */
ATTN_API int32_t attn_error_cuda_code(const attn_error* error);

/* ---- Element types ---- */

typedef int32_t attn_dtype;
enum {
  ATTN_DTYPE_F16 = 1,
  ATTN_DTYPE_BF16 = 2,
  ATTN_DTYPE_F32 = 3,
  ATTN_DTYPE_F64 = 4,
  ATTN_DTYPE_I8 = 5,
  ATTN_DTYPE_U8 = 6,
  ATTN_DTYPE_I32 = 7,
  ATTN_DTYPE_I64 = 8,
  ATTN_DTYPE_BOOL = 9, /* one byte, 0 or 1 */
  /* Floats of 8 bits, of the OCP specification: e4m3 has no infinity and ends at 448. */
  ATTN_DTYPE_E4M3 = 10,
  ATTN_DTYPE_E5M2 = 11,
  ATTN_DTYPE_E8M0 = 12 /* the scale of a block: 2^(byte - 127), 255 is NaN */
};

ATTN_API const char* attn_dtype_name(attn_dtype dtype); /* "bf16", "bool"; or "unknown" */
ATTN_API size_t attn_dtype_bytes(attn_dtype dtype);     /* per element; 0 if not a dtype */

/* ---- Runtime: a device, its cuDNN, and a cache of executables ---- */

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

/* ---- Executable: a loaded plan ---- */

typedef struct attn_executable attn_executable;

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

/* Loads a plan; nothing is compiled. `options` may be NULL. `*executable` has one reference, owned
 * by the caller, and keeps what it needs of the runtime alive. Errors: io, plan_truncated,
 * plan_damaged, plan_foreign, plan_newer, plan_refused; plan_device and plan_version if the plan
 * does not fit this machine; invalid_argument if the file has no plan or several plans of the
 * direction, or if `sha256` is malformed; cuda, cudnn. */
ATTN_API attn_status attn_executable_load_file(attn_runtime* runtime, const char* path,
                                               const attn_load_options* options,
                                               attn_executable** executable, attn_error* error);
/* The same from the contents of a plan file, which may be freed after the call. */
ATTN_API attn_status attn_executable_load_memory(attn_runtime* runtime, const void* bytes,
                                                 size_t byte_count,
                                                 const attn_load_options* options,
                                                 attn_executable** executable, attn_error* error);
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

/* In a backward plan, `saved` is an output of the forward, and `cotangent` the gradient of the loss
 * with respect to o. */
typedef int32_t attn_role;
enum {
  ATTN_ROLE_QUERY = 1,
  ATTN_ROLE_KEY = 2,
  ATTN_ROLE_VALUE = 3,
  ATTN_ROLE_CAPTURED = 4,
  ATTN_ROLE_OUTPUT = 5,
  ATTN_ROLE_STATS = 6,
  ATTN_ROLE_CONTROL = 7, /* offsets, page tables, seeds */
  ATTN_ROLE_SAVED = 8,
  ATTN_ROLE_COTANGENT = 9,
  ATTN_ROLE_GRADIENT = 10,
  ATTN_ROLE_AMAX = 11 /* one f32: the largest magnitude of what an 8-bit tensor holds */
};
/* Its name, such as "query"; "unknown" if `role` is not a role. Static text: nobody frees it. */
ATTN_API const char* attn_role_name(attn_role role);

/* A tensor to bind. Dims are in logical order: q and o [B,Hq,Sq,D], k and v [B,Hkv,Skv,D], lse
 * [B,Hq,Sq], captured tensors as declared. Strides are in elements. Pointers are valid as long as
 * the handle that returned them. */
typedef struct attn_tensor_info {
  size_t size;
  const char* name;
  attn_role role;
  attn_dtype dtype;
  int32_t is_output; /* 1: executes write it */
  int32_t rank;
  const int64_t* dims;
  const int64_t* strides;
  int64_t alignment; /* of the address, in bytes */
  /* "", or the control tensor that locates its rows: a page table (then dims are those of the page
   * pool) or cu_seqlens (then the batch stride is unused). */
  const char* addressed_by;
  /* Bytes to allocate: from the first element to the end of the last, gaps included; 0 if there are
   * no elements. With cu_seqlens, the rows in use are enough; with a page table, the pages in use.
   */
  int64_t bytes;
} attn_tensor_info;

/* A scalar to bind. */
typedef struct attn_param_info {
  size_t size;
  const char* name;
  attn_dtype dtype; /* f32 or i32 */
  int32_t reserved;
} attn_param_info;

/* `index` is less than tensor_count or param_count. `info` is valid as long as the executable. */
ATTN_API attn_status attn_executable_tensor(const attn_executable* executable, size_t index,
                                            attn_tensor_info* info, attn_error* error);
/* The same of a param. */
ATTN_API attn_status attn_executable_param(const attn_executable* executable, size_t index,
                                           attn_param_info* info, attn_error* error);

/* ---- Plan: the contents of a plan file, without a GPU ---- */

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
/* Like attn_executable_load_file, for a plan of an open file, which was already verified. */
ATTN_API attn_status attn_executable_load_plan(attn_runtime* runtime, const attn_plan* plan,
                                               size_t index, attn_executable** executable,
                                               attn_error* error);

/* ---- Arguments: tensors and params by name, in any order ---- */

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

/* ---- Binding: checked arguments and a workspace ---- */

typedef struct attn_binding attn_binding;

typedef int32_t attn_workspace;
enum {
  ATTN_WORKSPACE_OWNED = 0,         /* the binding allocates and keeps it */
  ATTN_WORKSPACE_CALLER = 1,        /* `workspace_memory`; nothing else may use it meanwhile */
  ATTN_WORKSPACE_STREAM_ORDERED = 2 /* each execute allocates and frees it on its stream */
};

typedef struct attn_bind_options {
  size_t size;
  attn_workspace workspace;
  int32_t reserved;       /* 0 */
  void* workspace_memory; /* workspace_bytes long, aligned to 256 bytes */
  /* Number of address sets kept prepared, least recently used evicted first: see
   * attn_binding_set_addresses. At most 4096; 0: 8. */
  uint64_t kept_addresses;
  /* The stream of the executes. Values that are checked may be written by what it, or the default
   * stream, was given before. It is needed if it may be being captured into a CUDA graph: then the
   * call waits for nothing, executes share cuDNN handles with other bindings, and values are not
   * checked, for which a binding of the executable must have been created before the capture (else
   * error binding). The arguments are those of the graph's launches. NULL: the default stream. */
  void* stream;
} attn_bind_options;

/* Checks everything that could make a kernel access wrong memory, and prepares all that an execute
 * needs. `options` may be NULL; `arguments` may be destroyed afterwards. The caller keeps ownership
 * of the tensors, which must outlive the executes that use them. The binding keeps what it needs of
 * the executable alive. If a score indexes by captured tensors or params, their values are checked
 * too, and the call waits for what the default stream and options.stream were given before.
 * Errors: binding (one per mistake, each naming its tensor: the first is the message, the others
 * are notes), cuda, cudnn. */
ATTN_API attn_status attn_binding_create(const attn_executable* executable,
                                         const attn_arguments* arguments,
                                         const attn_bind_options* options, attn_binding** binding,
                                         attn_error* error);
/* Destroys the binding. Frees its own workspace once the device is done with it. CUDA graphs that
 * were captured from it must not be launched any more. */
ATTN_API void attn_binding_destroy(attn_binding* binding);

/* Sets a param for later executes. Errors: binding, for an unknown name or a value that its dtype
 * cannot hold. */
ATTN_API attn_status attn_binding_set_param(attn_binding* binding, const char* name, double value,
                                            attn_error* error);

typedef int32_t attn_check;
enum {
  ATTN_CHECK_ADDRESSES = 0, /* alignment, and that each is device memory of this device */
  ATTN_CHECK_NOTHING = 1    /* the caller guarantees that they are valid */
};

/* Later executes use other memory of the same shapes: `count` addresses, in the order of the
 * executable's tensors. Switching to a kept address set is free, preparing a new one takes a
 * microsecond or two: for a binding shared by N layers, keep N.
 * Errors: binding (also if `count` is wrong), cudnn. */
ATTN_API attn_status attn_binding_set_addresses(attn_binding* binding, void* const* addresses,
                                                size_t count, attn_check check, attn_error* error);

/* Later executes use this workspace, owned by the caller. A workspace that the binding owned is
 * freed when the device is done with it or, after attn_binding_cuda_graph, with the binding.
 * Errors: binding, cudnn. */
ATTN_API attn_status attn_binding_set_workspace(attn_binding* binding, void* memory,
                                                attn_error* error);

/* Enqueues on `stream` and returns without waiting: no lock, no allocation (except a stream-ordered
 * workspace), no check of the tensors. May be captured into a CUDA graph, the first time too; the
 * binding and the workspace it had must then outlive the graph's launches. With a stream-ordered
 * workspace from the application's allocator, capture fails with invalid_argument: use a workspace
 * owned by the binding or the caller. Executes that may overlap on several streams need their own
 * workspace and outputs and, where page table rows are copied, their own binding. Errors: cuda,
 * cudnn; the outputs are then undefined. */
ATTN_API attn_status attn_binding_execute(attn_binding* binding, void* stream, attn_error* error);

/* Returns one execute as a CUgraph with the current addresses, params and workspace, for use as a
 * child node (cuGraphAddChildGraphNode copies it). The binding owns it; it is valid until the next
 * such call or until the binding is destroyed. The binding and its workspace must outlive the
 * launches. A child node cannot hold a stream-ordered workspace, so such a binding allocates its
 * own workspace for its graphs. Errors: cuda, cudnn. */
ATTN_API attn_status attn_binding_cuda_graph(attn_binding* binding, void** graph,
                                             attn_error* error);

/* ---- Graph: an execute as a CUDA graph ---- */

typedef struct attn_graph attn_graph;

/* Takes ownership of `*binding` and sets it to NULL. On error the caller keeps the binding,
 * unchanged. Errors: cuda, cudnn. */
ATTN_API attn_status attn_graph_from_binding(attn_binding** binding, attn_graph** graph,
                                             attn_error* error);
/* The same, but takes ownership of `binding` even on error: it must not be used or destroyed
 * afterwards. */
ATTN_API attn_status attn_graph_capture(attn_binding* binding, attn_graph** graph,
                                        attn_error* error);
/* Destroys the graph and the binding in it. */
ATTN_API void attn_graph_destroy(attn_graph* graph);
/* As for a binding. The next launch updates the graph. */
ATTN_API attn_status attn_graph_set_param(attn_graph* graph, const char* name, double value,
                                          attn_error* error);
/* As attn_binding_set_addresses. The next launch updates the graph. */
ATTN_API attn_status attn_graph_set_addresses(attn_graph* graph, void* const* addresses,
                                              size_t count, attn_check check, attn_error* error);
/* Enqueues the execute on `stream` and returns without waiting. Errors: cuda, cudnn. */
ATTN_API attn_status attn_graph_launch(attn_graph* graph, void* stream, attn_error* error);

/* ---- Picker: one attention at varying sizes ---- */

/* Holds the plans of one spec for several sizes, selects the one that serves given sizes, and can
 * build missing ones. Any number of threads may pick at once. Picking known sizes is a look-up and
 * never waits for a build or load. */
typedef struct attn_picker attn_picker;

typedef int32_t attn_dim;
enum {
  ATTN_DIM_B = 0,
  ATTN_DIM_HQ = 1,
  ATTN_DIM_HKV = 2,
  ATTN_DIM_SQ = 3,
  ATTN_DIM_SKV = 4,
  ATTN_DIM_DQK = 5,
  ATTN_DIM_DV = 6
};
#define ATTN_DIM_COUNT 7
ATTN_API const char* attn_dim_name(attn_dim dim); /* "B", "Hkv"; "unknown" */

typedef struct attn_dim_size {
  attn_dim dim;
  int32_t reserved; /* 0 */
  int64_t size;
} attn_dim_size;

/* The sizes a plan is for. Embedded in other structures, so it never grows. */
typedef struct attn_shape {
  int64_t sizes[ATTN_DIM_COUNT]; /* by attn_dim */
  /* Bit `1 << dim` is set for each of B, Sq and Skv for which the plan also serves smaller sizes.
   */
  uint32_t padded;
  int32_t reserved;
} attn_shape;

typedef struct attn_picker_options {
  size_t size;
  /* Program that builds missing plans, run as a separate process and searched in PATH if it has no
   * slash: "attnc", or a script that execs it. It uses the runtime's cuDNN. NULL: never build. */
  const char* attnc;
  /* Target to build for: a name that attnc knows or a file ending in ".json". NULL: the target of
   * the plans for this device's compute capability, else the GPU that attnc finds. */
  const char* target;
  const char* const* arguments; /* extra arguments for `attnc compile`: "--direction", "both" */
  size_t argument_count;
  uint64_t most_built;     /* built shapes kept, least recently used evicted first; 0: 256 */
  int32_t timeout_seconds; /* builds are killed after this time; 0: 300 */
  int32_t reserved;        /* 0 */
  /* For the file that the picker loads, as in attn_load_options; not for built plans. */
  const char* sha256;
  attn_verify_callback verify;
  void* verify_user;
} attn_picker_options;

/* Creates a picker from a plan file, which may hold several shapes, each with the same directions.
 * `options` may be NULL. Plans are loaded when first picked. The picker holds a reference to the
 * runtime.
 *
 * With `attnc`, a plan for another GPU or cuDNN version is ignored, and so is the other direction
 * of its training pair: it is rebuilt if the policy allows, otherwise the notes of plan_shape name
 * it. Without `attnc`, picking it fails with plan_device or plan_version.
 *
 * Errors: io, plan_truncated, plan_damaged, plan_foreign, plan_newer, plan_refused;
 * invalid_argument if the plans are not of one spec, and for invalid options. */
ATTN_API attn_status attn_picker_load_file(attn_runtime* runtime, const char* path,
                                           const attn_picker_options* options, attn_picker** picker,
                                           attn_error* error);
/* The same from the contents of a plan file, which may be freed after the call. */
ATTN_API attn_status attn_picker_load_memory(attn_runtime* runtime, const void* bytes,
                                             size_t byte_count, const attn_picker_options* options,
                                             attn_picker** picker, attn_error* error);

typedef struct attn_spec_binding {
  const char* name;
  const char* value;
} attn_spec_binding;

typedef struct attn_spec {
  size_t size;
  const char* text;                  /* DSL, or JSON when it begins with '{' */
  const attn_spec_binding* bindings; /* parameters and fixed sizes */
  size_t binding_count;
  size_t binding_bytes; /* sizeof(attn_spec_binding); 0: 16, as in the first attn.h */
} attn_spec;

/* Creates a picker without plans: all are built. Errors: invalid_argument, also if `attnc` is NULL.
 */
ATTN_API attn_status attn_picker_create(attn_runtime* runtime, const attn_spec* spec,
                                        const attn_picker_options* options, attn_picker** picker,
                                        attn_error* error);
/* No other thread may be using the picker. Kills background builds and waits for them to exit.
 * Picked executables remain valid. */
ATTN_API void attn_picker_destroy(attn_picker* picker);

typedef int32_t attn_build;
enum {
  ATTN_BUILD_NEVER = 0,
  ATTN_BUILD_NOW = 1,          /* the call waits for the build */
  ATTN_BUILD_IN_BACKGROUND = 2 /* the call returns at once; a later one finds the plan */
};

typedef struct attn_pick_policy {
  size_t size;
  /* What to do if no plan has or contains these sizes; with IN_BACKGROUND also if only a larger
   * plan does, which is returned meanwhile. */
  attn_build build;
  int32_t exact_only;    /* nonzero: do not use plans of larger sizes */
  int32_t retry;         /* nonzero: retry builds that failed before */
  int32_t reserved;      /* 0 */
  size_t dim_size_bytes; /* sizeof(attn_dim_size); 0: 16, as in the first attn.h */
} attn_pick_policy;

typedef int32_t attn_fit;
enum {
  ATTN_FIT_EXACT = 0,
  /* The plan is for larger sizes. Bind tensors with its dims and strides, with the valid part first
   * along each dimension. Lengths give the size of the valid part and are 0 for unused batches.
   * Padding in q, k, v, do and float tensors must be finite; in integer tensors it must be a value
   * that could occur (0; in a monotone tensor the last element; in a page table a page). Padding in
   * outputs and gradients is undefined. */
  ATTN_FIT_BUCKET = 1,
  ATTN_FIT_BUILT = 2 /* built for this call */
};

typedef struct attn_picked {
  size_t size;
  /* One reference each, which the caller must release; NULL if there is no plan of that direction.
   * The same plan has the same handle as long as the picker keeps it. */
  attn_executable* forward;
  attn_executable* backward;
  attn_shape shape; /* of the plan */
  attn_fit fit;
  int32_t reserved;
} attn_picked;

/* Picks the plan of exactly these `count` sizes; else, if B, Sq and Skv are all given, the one with
 * the least work that contains them; else builds one, if the policy allows. Dimensions that are not
 * given are taken from the plans. `policy` may be NULL.
 * Errors: plan_shape if nothing serves the sizes, with notes that list the available shapes and
 * hints; plan_pending while the plan is being built and no other serves; invalid_argument if a size
 * would have to be guessed; for a failed build the error that attnc reports, or worker if it died
 * or timed out, also for later picks unless `retry`; those of attn_executable_load_file. */
ATTN_API attn_status attn_picker_pick(attn_picker* picker, const attn_dim_size* sizes, size_t count,
                                      const attn_pick_policy* policy, attn_picked* picked,
                                      attn_error* error);
/* Writes the first `capacity` shapes that have plans, built ones included, and their total number
 * to `count`. `shape_bytes` is sizeof(attn_shape); each element is filled up to it. */
ATTN_API attn_status attn_picker_list(const attn_picker* picker, attn_shape* shapes,
                                      size_t shape_bytes, size_t capacity, size_t* count,
                                      attn_error* error);
/* The same with the attn_shape size of the first attn.h. */
ATTN_API attn_status attn_picker_shapes(const attn_picker* picker, attn_shape* shapes,
                                        size_t capacity, size_t* count, attn_error* error);

/* ---- Distributed: one attention on several GPUs ---- */

/* One rank of an attention that `attnc compile --ranks` divided among several GPUs: a process (or
 * thread) for each GPU has one. For one thread at a time, together with its bindings. */
typedef struct attn_distributed attn_distributed;
typedef struct attn_distributed_binding attn_distributed_binding;

/* Ends all communication of a communicator that does not answer, so that kernels that wait for it
 * end. Called once at most, from a thread of the library or one that opens or executes. Must not
 * throw, nor destroy the object. */
typedef void (*attn_abort_callback)(void* user);

/* Whether ranks wait in vain, because one has ended or failed, as far as the application knows.
 * Nonzero: yes, and the message, NUL-terminated UTF-8 of at most `capacity` bytes, is in `why`.
 * Asked about every second while opening or an exchange takes longer than one, from a thread of the
 * library or one that opens. Must not throw, call CUDA, nor destroy the object. */
typedef int32_t (*attn_lost_callback)(void* user, char* why, size_t capacity);

typedef struct attn_distributed_options {
  size_t size;
  /* NCCL's ncclComm_t, of as many ranks as the file has, on the runtime's device. The caller keeps
   * it, and keeps it until the object is destroyed. Its rank is the rank here. */
  void* communicator;
  /* With libnccl.so.2; NULL: the copy that the process has loaded, or $ATTN_NCCL_DIR or default
   * paths. */
  const char* nccl_folder;
  /* From an execute's first exchange on the device to its last, with what this rank and others
   * compute between them: then it is given up. 0: 30. */
  int32_t timeout_seconds;
  int32_t directions; /* bit 1 << attn_direction of those to load; 0: all of the file */
  /* NULL: ncclCommAbort(communicator), after which the caller must not use or destroy it. */
  attn_abort_callback abort;
  void* abort_user;
  /* Checks of the loaded file, as in attn_load_options. */
  const char* sha256;
  attn_verify_callback verify;
  void* verify_user;
  /* Gives exchanges up before the time. NULL: only the time does. */
  attn_lost_callback lost;
  void* lost_user;
} attn_distributed_options;

/* Collective: all ranks must call it, and all return an error if one of them fails. Loads the plans
 * of this rank and allocates what it needs besides the caller's tensors. Errors: those of
 * attn_executable_load_file; nccl if NCCL is missing, too old or fails, or a rank does not answer
 * within the time; mismatch if ranks have different files; invalid_argument for a file that is not
 * of ranks, or a communicator of another size or device. Another rank's error is reported with its
 * code, and names the rank. */
ATTN_API attn_status attn_distributed_open_file(attn_runtime* runtime, const char* path,
                                                const attn_distributed_options* options,
                                                attn_distributed** distributed, attn_error* error);
/* The same from the contents of a plan file, which may be freed after the call. */
ATTN_API attn_status attn_distributed_open_memory(attn_runtime* runtime, const void* bytes,
                                                  size_t byte_count,
                                                  const attn_distributed_options* options,
                                                  attn_distributed** distributed,
                                                  attn_error* error);
/* No other call may be running; waits for the device to finish this object's work, and for `abort`
 * if it was called. Destroy bindings first. */
ATTN_API void attn_distributed_destroy(attn_distributed* distributed);

typedef struct attn_interval {
  int64_t begin;
  int64_t end; /* one past the last */
} attn_interval;

typedef struct attn_distributed_info {
  size_t size;
  const char* name;
  const char* family;   /* hash of the file's contents that ranks must share */
  const char* sharding; /* in words */
  int32_t rank;
  int32_t ranks;
  /* Rows (of q, o, do, dq, lse) and keys (of k, v, dk, dv) that are at home on this rank, of all
   * heads, ascending. Owned by the object. */
  const attn_interval* rows;
  size_t row_intervals;
  const attn_interval* keys;
  size_t key_intervals;
  int64_t device_bytes; /* that the object holds */
  int32_t directions;   /* bit 1 << attn_direction of those it can execute */
  int32_t reserved;
} attn_distributed_info;

/* Describes the rank. Strings and intervals are valid as long as the object. Errors:
 * invalid_argument. */
ATTN_API attn_status attn_distributed_describe(const attn_distributed* distributed,
                                               attn_distributed_info* info, attn_error* error);
/* Rows (`which` 0) or keys (1) at home on any rank. Writes the first `capacity` intervals, and
 * their number to `count`. */
ATTN_API attn_status attn_distributed_home(const attn_distributed* distributed, int32_t rank,
                                           int32_t which, attn_interval* intervals, size_t capacity,
                                           size_t* count, attn_error* error);

/* Tensors to bind, by direction, as attn_executable_tensor: q [B,Hq,rows at home,Dqk], k and v
 * [B,Hkv,keys at home,D], o, lse [B,Hq,rows at home], and captured tensors, whole. Strides are
 * proposed: with rows before heads. Others may be bound if the last dimension of D is contiguous;
 * then the binding may allocate memory. Tensors without elements need not be bound. */
ATTN_API attn_status attn_distributed_tensor(const attn_distributed* distributed,
                                             attn_direction direction, size_t index,
                                             attn_tensor_info* info, attn_error* error);
/* 0 for a direction that it cannot execute. */
ATTN_API size_t attn_distributed_tensor_count(const attn_distributed* distributed,
                                              attn_direction direction);
/* Params to bind, by direction, as attn_executable_param. */
ATTN_API attn_status attn_distributed_param(const attn_distributed* distributed,
                                            attn_direction direction, size_t index,
                                            attn_param_info* info, attn_error* error);
/* 0 for a direction that it cannot execute. */
ATTN_API size_t attn_distributed_param_count(const attn_distributed* distributed,
                                             attn_direction direction);

/* Binds this rank's tensors, as attn_binding_create; of `options`, which may be NULL, only `stream`
 * may be set (else error invalid_argument). Not collective. If the attention was divided for values
 * (`attnc compile --ranks --in`), those bound are compared with these: it waits for what `stream`
 * was given, without one for the device, and copies such tensors. What is written into them later
 * is not seen, nor in graphs. While `stream` is captured nothing can be compared: it must have been
 * before, at the same addresses with the same strides (else error binding).
 * Errors: binding, also for other values, cuda, cudnn. */
ATTN_API attn_status attn_distributed_binding_create(
    attn_distributed* distributed, attn_direction direction, const attn_arguments* arguments,
    const attn_bind_options* options, attn_distributed_binding** binding, attn_error* error);
/* The same without options. */
ATTN_API attn_status attn_distributed_bind(attn_distributed* distributed, attn_direction direction,
                                           const attn_arguments* arguments,
                                           attn_distributed_binding** binding, attn_error* error);
/* Destroys the binding. Frees its own memory once the device is done with it. Not collective. */
ATTN_API void attn_distributed_binding_destroy(attn_distributed_binding* binding);
/* As attn_binding_set_addresses: in the order of the tensors above. ATTN_CHECK_ADDRESSES also
 * compares values of tensors at other addresses than now, as attn_distributed_binding_create does
 * with this `stream` (NULL: none): while it is captured, they must have been compared before. With
 * ATTN_CHECK_NOTHING the caller guarantees the values, too. Errors: binding, cuda. */
ATTN_API attn_status attn_distributed_binding_set_addresses(attn_distributed_binding* binding,
                                                            void* const* addresses, size_t count,
                                                            attn_check check, void* stream,
                                                            attn_error* error);
/* As attn_binding_set_param; the values of all ranks must be the same. Not collective. */
ATTN_API attn_status attn_distributed_binding_set_param(attn_distributed_binding* binding,
                                                        const char* name, double value,
                                                        attn_error* error);
/* Collective: every rank must execute the same directions in the same order. Enqueues on `stream`,
 * and exchanges on a stream of its own beside it, and returns without waiting. May be captured into
 * a CUDA graph; then every rank must launch its graph as often, and the binding must outlive the
 * launches. Executes of one object share its
 * memory, so those on different streams must not overlap. Errors: cuda, cudnn, nccl; and those of
 * attn_distributed_status, which the outputs of earlier executes need too. */
ATTN_API attn_status attn_distributed_execute(attn_distributed_binding* binding, void* stream,
                                              attn_error* error);

/* Whether all exchanges until now went well, or may still. After synchronizing with the stream,
 * tells whether the outputs are valid. Errors: nccl: what failed, and on which rank as far as
 * known; the object can then only be destroyed. */
ATTN_API attn_status attn_distributed_status(attn_distributed* distributed, attn_error* error);
/* Not collective: gives up what ranks exchange, as after a failure of NCCL, with `why` as the error
 * of later calls: for a rank that cannot make a call for which others wait. */
ATTN_API attn_status attn_distributed_abort(attn_distributed* distributed, const char* why,
                                            attn_error* error);

/* ---- Conveniences ----
 * For small programs and tests that build without CUDA. Applications may use their own streams and
 * memory instead. */

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

#ifdef __cplusplus
}
#endif

#endif
