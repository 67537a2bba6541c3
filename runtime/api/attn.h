/* The runtime of attnc, to embed: load a plan once, bind tensors once, execute many times. C99; the
 * only binary interface of libattn. attn.hpp is the same for C++.
 *
 *   attn_runtime* runtime = NULL;
 *   attn_executable* executable = NULL;
 *   attn_runtime_open(NULL, &runtime, error);
 *   attn_executable_load_file(runtime, "causal.attnplan", NULL, &executable, error);
 *   .. attn_arguments_tensor(arguments, &q, error) ..
 *   attn_binding_create(executable, arguments, NULL, &binding, error);
 *   attn_binding_execute(binding, stream, error);
 *
 * Errors. A function that can fail returns an attn_status, and says more in `error`, which the
 * caller owns and which may be NULL. An output is written only when the status is ATTN_STATUS_OK. A
 * NULL handle is ATTN_STATUS_INVALID_ARGUMENT, but for functions that end something, which then do
 * nothing. No C++ exception leaves the library.
 *
 * Threads. attn_runtime and attn_executable are immutable, counted, and may be used by any number
 * of threads at once, and so may an attn_picker. Everything else is for one thread at a time. The
 * library has no state of its own besides what its handles hold: users in one process do not meet.
 *
 * Structures that begin with `size` must have it set to their sizeof, and all that is not set to 0,
 * which is the default: `attn_bind_options options = {.size = sizeof options};`. A library that is
 * newer than this header then knows what the caller knows, and an older one refuses what it does
 * not know. A structure that the library fills is filled as far as `size` goes. Fields that are
 * `reserved` must be 0. Structures grow at their end; of arrays of structures the caller says how
 * large an element is.
 *
 * Streams are CUstream or cudaStream_t as void*; NULL is the default stream. Device addresses are
 * void*. No call needs a CUDA context to be current, and none changes which one is; but a thread
 * that had none has the device's primary context afterwards. Text is UTF-8,
 * ends with 0, and belongs to the handle that gave it. */
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

/* Of this header. It grows only when something that there was changes or goes, and so does the
 * soname of the library. */
#define ATTN_API_VERSION 1

ATTN_API int32_t attn_api_version(void); /* ATTN_API_VERSION of the library */
ATTN_API const char* attn_version(void); /* of the library: "0.1.0" */

/* ---- Status and errors ---- */

typedef int32_t attn_status;
enum {
  ATTN_STATUS_OK = 0,
  ATTN_STATUS_INVALID_ARGUMENT = 1, /* the call has no meaning */
  ATTN_STATUS_INVALID_SPEC = 2,
  ATTN_STATUS_UNSUPPORTED = 3, /* valid, but not served on this target by this cuDNN */
  ATTN_STATUS_BINDING = 4,     /* a tensor or param does not fit the plan */
  ATTN_STATUS_CUDA = 5,        /* the driver reported a failure, or is missing: see
                                * attn_error_cuda_failure */
  ATTN_STATUS_CUDNN = 6,       /* cuDNN reported a failure, or is missing */
  ATTN_STATUS_WORKER = 7,
  ATTN_STATUS_IO = 8, /* a file could not be read or written */
  ATTN_STATUS_MISMATCH = 9,
  ATTN_STATUS_PLAN_TRUNCATED = 10, /* the plan file ends too early */
  ATTN_STATUS_PLAN_DAMAGED = 11,   /* its checksums or contents do not agree */
  ATTN_STATUS_PLAN_FOREIGN = 12,   /* it is not a plan file */
  ATTN_STATUS_PLAN_NEWER = 13,     /* it was written in a newer format */
  ATTN_STATUS_PLAN_VERSION = 14,   /* it was made for another version of cuDNN */
  ATTN_STATUS_PLAN_DEVICE = 15,    /* it was made for another GPU architecture */
  ATTN_STATUS_INTERNAL = 16,       /* a bug in this library */
  ATTN_STATUS_OUT_OF_MEMORY = 17,  /* of the host; that of the device is ATTN_STATUS_CUDA */
  ATTN_STATUS_PLAN_SHAPE = 18,     /* there is no plan for these sizes */
  ATTN_STATUS_PLAN_PENDING = 19,   /* the plan for these sizes is still being built */
  ATTN_STATUS_PLAN_REFUSED = 20    /* its hash is not the expected one, or `verify` refused it */
};

/* "plan_version"; "unknown" for a number that is no status. */
ATTN_API const char* attn_status_name(attn_status status);
/* What attnc would exit with: 0 ok, 1 a spec with errors, 2 usage, 3 unsupported, 4 CUDA, cuDNN, the
 * system, or arguments that do not fit, 5 results that differ, 6 an unreadable plan, 70 a bug. */
ATTN_API int32_t attn_status_exit_code(attn_status status);

/* What the last call that was given it had to say. May be used again and again; a call that
 * succeeds leaves it at ATTN_STATUS_OK, without message. Its text is valid until the next such
 * call. */
typedef struct attn_error attn_error;

ATTN_API attn_error* attn_error_create(void); /* NULL when there is no memory */
ATTN_API void attn_error_destroy(attn_error* error);
/* Of a NULL error: ATTN_STATUS_OK, no notes, and "". */
ATTN_API attn_status attn_error_status(const attn_error* error);
ATTN_API const char* attn_error_message(const attn_error* error); /* one sentence, no period */
ATTN_API size_t attn_error_note_count(const attn_error* error);
/* What was tried, the words of cuDNN or the driver, what would help; "" from the count on. */
ATTN_API const char* attn_error_note(const attn_error* error, size_t index);
/* JSON, or "": of a failed cuDNN call {"call", "status", "reason"}, with the stage and the place;
 * of a failed CUDA call {"cuda", "name", "kind"}. */
ATTN_API const char* attn_error_payload(const attn_error* error);
/* The message, and a line "  note: .." for each note. */
ATTN_API const char* attn_error_text(const attn_error* error);

/* What an application can do about a failure of CUDA. */
typedef int32_t attn_cuda_failure;
enum {
  ATTN_CUDA_NONE = 0,          /* no error, or none that the driver reported */
  ATTN_CUDA_OTHER = 1,         /* see the number */
  ATTN_CUDA_OUT_OF_MEMORY = 2, /* of the device: free some, then call again */
  /* Sticky: a kernel of this process failed, and every later CUDA call does. Only a new process
   * helps. */
  ATTN_CUDA_FAULT = 3,
  ATTN_CUDA_NO_DRIVER = 4 /* no driver, one that cannot be used, or no device */
};
ATTN_API attn_cuda_failure attn_error_cuda_failure(const attn_error* error);
/* The driver's number, a CUresult, which is what cudaError_t has for it too; 0 when the driver
 * reported none, as when there is none. */
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
  ATTN_DTYPE_BOOL = 9 /* a byte, 0 or 1 */
};

ATTN_API const char* attn_dtype_name(attn_dtype dtype); /* "bf16", "bool"; "unknown" */
ATTN_API size_t attn_dtype_bytes(attn_dtype dtype);     /* of an element; 0 for no dtype */

/* ---- Runtime: a device, its cuDNN, and the executables that are kept ---- */

typedef struct attn_runtime attn_runtime;

typedef int32_t attn_log_level;
enum { ATTN_LOG_DEBUG = 0, ATTN_LOG_INFO = 1, ATTN_LOG_WARNING = 2, ATTN_LOG_ERROR = 3 };

/* Called on the thread on which it happens, possibly by several at once, and never by an execute
 * that succeeds. */
typedef void (*attn_log_callback)(void* user, attn_log_level level, const char* message);

/* Device memory from the application: for workspaces, and for what executables and bindings hold.
 * cuDNN's own handles and the code of kernels take theirs from the driver. Called from any thread,
 * several at once, with the device's context current; must not call back into the library.
 *
 * Allocate returns an address on the runtime's device at a multiple of 256, or NULL when there is
 * no memory left. With `stream` NULL the memory is used on any stream, at once: nothing that was
 * enqueued before may still use it. With a stream, that of an execute with
 * ATTN_WORKSPACE_STREAM_ORDERED, it is used by what is enqueued there alone; the default stream is
 * cudaStreamLegacy then. Such an execute cannot be captured into a CUDA graph: it returns
 * ATTN_STATUS_INVALID_ARGUMENT. Free gets what allocate got. With a stream, what was enqueued there
 * may still use the memory. With NULL, nothing uses it any more: the library has waited for the
 * device. */
typedef void* (*attn_allocate_callback)(void* user, size_t bytes, void* stream);
typedef void (*attn_free_callback)(void* user, void* memory, size_t bytes, void* stream);

typedef struct attn_runtime_options {
  size_t size;
  const char* cudnn_folder; /* of libcudnn.so.9. NULL: $ATTN_CUDNN_DIR, else the usual places */
  int32_t device;           /* CUDA ordinal */
  /* How many threads can be inside an execute at once, each with a cuDNN handle; more wait for one
   * of them. At most 64; 0: 16. */
  int32_t most_handles;
  /* Executables that are kept when nobody holds them, so that a plan which is loaded again costs no
   * more than a look-up; the least recently used goes first. */
  uint64_t cache_entries; /* 0: 256 */
  uint64_t cache_bytes;   /* of kernels, plans, and device memory that executables hold; 0: 1 GiB */
  /* Not 0: binding does not look for values that lead outside a tensor, or divide by 0, where a
   * score depends on them. Such scores then have some value; nothing outside a tensor is read in
   * either case. */
  int32_t skip_value_checks;
  int32_t reserved;      /* 0 */
  attn_log_callback log; /* may be NULL */
  void* log_user;
  /* May be NULL. Called once with log_user, when `log` is never called again: after a failure to
   * open, that is before attn_runtime_open returns. */
  void (*log_release)(void* user);
  /* Both or none; NULL: the driver's. */
  attn_allocate_callback allocate_memory;
  attn_free_callback free_memory;
  void* allocator_user;
  /* May be NULL. Called once with allocator_user, when neither is called again: as log_release. */
  void (*allocator_release)(void* user);
} attn_runtime_options;

/* Opens a device with its primary context, the one that the CUDA runtime uses, and loads cuDNN.
 * `options` may be NULL. The result has one reference. Errors: cuda, cudnn. */
ATTN_API attn_status attn_runtime_open(const attn_runtime_options* options, attn_runtime** runtime,
                                       attn_error* error);
ATTN_API void attn_runtime_retain(attn_runtime* runtime);
/* The last one ends it; executables that are held live on. */
ATTN_API void attn_runtime_release(attn_runtime* runtime);

typedef struct attn_runtime_info {
  size_t size;
  const char* device_name;   /* "NVIDIA H200" */
  int32_t device;            /* CUDA ordinal */
  int32_t sm;                /* compute capability * 10: 90 for Hopper */
  int64_t cudnn_version;     /* 91900 for 9.19.0 */
  const char* cudnn_library; /* the file that was loaded */
} attn_runtime_info;

ATTN_API attn_status attn_runtime_describe(const attn_runtime* runtime, attn_runtime_info* info,
                                           attn_error* error);

/* What became of the requests for executables since the runtime was opened or the counters reset.
 */
typedef struct attn_cache_counters {
  size_t size;
  uint64_t hit;      /* answered from what is kept */
  uint64_t miss;     /* loaded */
  uint64_t wait;     /* waited for another thread that loaded the same */
  uint64_t negative; /* answered by a refusal that was kept */
  uint64_t evict;    /* executables that had to go */
  uint64_t entries;  /* that are kept now; not reset */
  uint64_t bytes;    /* that these count; not reset */
} attn_cache_counters;

/* `reset` not 0: the counters start from 0 again, and nothing is lost that is counted meanwhile. */
ATTN_API attn_status attn_runtime_cache_counters(attn_runtime* runtime, int32_t reset,
                                                 attn_cache_counters* counters, attn_error* error);
/* Lets go of all executables: those that nobody holds end. */
ATTN_API attn_status attn_runtime_cache_clear(attn_runtime* runtime, attn_error* error);

/* ---- Executable: a loaded plan ---- */

typedef struct attn_executable attn_executable;

typedef int32_t attn_direction;
enum { ATTN_DIRECTION_FORWARD = 0, ATTN_DIRECTION_BACKWARD = 1 };

/* Called with the contents of a plan file, to its end, before anything of it is parsed, on the
 * thread of the call. 0 accepts; any other number refuses with ATTN_STATUS_PLAN_REFUSED, and is in
 * the message. */
typedef int32_t (*attn_verify_callback)(void* user, const void* bytes, size_t byte_count);

/* A plan is code: its kernels run on the device with the rights of the process, so load only what
 * you trust. The checksums within a file find damage, not intent. */
typedef struct attn_load_options {
  size_t size;
  attn_direction direction; /* which plan of a training pair */
  int32_t reserved;         /* 0 */
  /* Of the whole file, 64 hexadecimal digits, as sha256sum prints them. A file with another one is
   * refused with ATTN_STATUS_PLAN_REFUSED. NULL: any. */
  const char* sha256;
  attn_verify_callback verify; /* may be NULL; after the hash */
  void* verify_user;
} attn_load_options;

/* Nothing is compiled. `options` may be NULL. The result has one reference, and keeps alive what it
 * needs of the runtime. Errors: io, plan_truncated, plan_damaged, plan_foreign, plan_newer,
 * plan_refused; plan_device and plan_version when the plan does not fit the machine;
 * invalid_argument when it has no plan of that direction, or several, and for a `sha256` that is
 * not one; cuda, cudnn. */
ATTN_API attn_status attn_executable_load_file(attn_runtime* runtime, const char* path,
                                               const attn_load_options* options,
                                               attn_executable** executable, attn_error* error);
/* The same with the contents of a plan file, which are not needed any more afterwards. */
ATTN_API attn_status attn_executable_load_memory(attn_runtime* runtime, const void* bytes,
                                                 size_t byte_count,
                                                 const attn_load_options* options,
                                                 attn_executable** executable, attn_error* error);
ATTN_API void attn_executable_retain(attn_executable* executable);
/* Also from any thread, and while its bindings are in use, which live on. */
ATTN_API void attn_executable_release(attn_executable* executable);

typedef struct attn_executable_info {
  size_t size;
  const char* name;        /* of the attention */
  const char* signature;   /* 32 hexadecimal digits: of program, GPU and cuDNN's version */
  const char* target;      /* the GPU that it was compiled for: "h200" */
  int64_t workspace_bytes; /* of device memory, that an execute needs besides the tensors */
  attn_direction direction;
  int32_t reserved;
  size_t tensor_count;
  size_t param_count;
  /* Of device memory that the executable holds, for all its bindings together: tensors that are
   * made once, and what kernels count by. Not the code of kernels, and nothing of cuDNN's. */
  int64_t device_bytes;
} attn_executable_info;

ATTN_API attn_status attn_executable_describe(const attn_executable* executable,
                                              attn_executable_info* info, attn_error* error);

/* Of a backward: `saved` is what the forward wrote, `cotangent` the derivative of the loss by o. */
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
  ATTN_ROLE_GRADIENT = 10
};
ATTN_API const char* attn_role_name(attn_role role);

/* A tensor to bind. Dims in logical order: q and o [B,Hq,Sq,D], k and v [B,Hkv,Skv,D], lse
 * [B,Hq,Sq], captured as declared. Strides in elements. */
typedef struct attn_tensor_info {
  size_t size;
  const char* name;
  attn_role role;
  attn_dtype dtype;
  int32_t is_output; /* 1: it is written */
  int32_t rank;
  const int64_t* dims;
  const int64_t* strides;
  int64_t alignment; /* bytes, of the address */
  /* "", or the control tensor that says where its rows lie: a page table, whose pool the dims are
   * then of, or cu_seqlens, with which the stride of the batch is not used. */
  const char* addressed_by;
  /* From the first element to the end of the last, gaps included: what has to be allocated. 0 for a
   * tensor without elements. With cu_seqlens, allocating the existing rows is enough; with a page
   * table, the existing pages. */
  int64_t bytes;
} attn_tensor_info;

/* A scalar to bind. */
typedef struct attn_param_info {
  size_t size;
  const char* name;
  attn_dtype dtype; /* f32 or i32 */
  int32_t reserved;
} attn_param_info;

/* `index` from 0 to tensor_count - 1 or param_count - 1; valid as long as the executable. */
ATTN_API attn_status attn_executable_tensor(const attn_executable* executable, size_t index,
                                            attn_tensor_info* info, attn_error* error);
ATTN_API attn_status attn_executable_param(const attn_executable* executable, size_t index,
                                           attn_param_info* info, attn_error* error);

/* ---- Plan: what a file holds, without a GPU ---- */

/* The plans of a file, which needs neither CUDA nor cuDNN. Immutable: any number of threads may
 * read it. */
typedef struct attn_plan attn_plan;

/* Only `sha256` and `verify` of `options` are used; it may be NULL. Errors: io, plan_truncated,
 * plan_damaged, plan_foreign, plan_newer, plan_refused; invalid_argument for a `sha256` that is not
 * one. */
ATTN_API attn_status attn_plan_open(const char* path, const attn_load_options* options,
                                    attn_plan** plan, attn_error* error);
/* The same with the contents of a plan file, which are not needed any more afterwards. */
ATTN_API attn_status attn_plan_open_memory(const void* bytes, size_t byte_count,
                                           const attn_load_options* options, attn_plan** plan,
                                           attn_error* error);
ATTN_API void attn_plan_close(attn_plan* plan);

typedef struct attn_plan_info {
  size_t size;
  const char* name;      /* of the attention */
  const char* signature; /* 32 hexadecimal digits; attn_executable_info has the same */
  const char* target;    /* the GPU that it was compiled for: "h200" */
  const char* spec;      /* the source as it was written */
  int32_t sm;            /* compute capability * 10, which the device must have */
  attn_direction direction;
  int64_t cudnn_version;   /* 91900 for 9.19.0: the one that must be loaded */
  int64_t workspace_bytes; /* as attn_executable_info */
  int64_t device_bytes;
  size_t tensor_count;
  size_t param_count;
  const int64_t*
      sizes;       /* ATTN_DIM_COUNT of them, by attn_dim; NULL: an older attnc made the plan */
  uint32_t padded; /* as in attn_shape */
  int32_t reserved;
} attn_plan_info;

/* How many plans the file has: one, a training pair, either for several shapes. 0 of NULL. */
ATTN_API size_t attn_plan_count(const attn_plan* plan);
/* `index` below that count; what is given is valid until the plan is closed. */
ATTN_API attn_status attn_plan_describe(const attn_plan* plan, size_t index, attn_plan_info* info,
                                        attn_error* error);
/* `tensor` and `param` from 0 to tensor_count - 1 and param_count - 1. */
ATTN_API attn_status attn_plan_tensor(const attn_plan* plan, size_t index, size_t tensor,
                                      attn_tensor_info* info, attn_error* error);
ATTN_API attn_status attn_plan_param(const attn_plan* plan, size_t index, size_t param,
                                     attn_param_info* info, attn_error* error);
/* As attn_executable_load_file, of what was opened, and so checked, before. */
ATTN_API attn_status attn_executable_load_plan(attn_runtime* runtime, const attn_plan* plan,
                                               size_t index, attn_executable** executable,
                                               attn_error* error);

/* ---- Arguments: tensors and params by name, in any order ---- */

typedef struct attn_arguments attn_arguments;

/* Device memory of the caller's. Name, dims and strides are copied. */
typedef struct attn_tensor {
  size_t size;
  const char* name;
  void* data;
  attn_dtype dtype;
  int32_t rank;
  const int64_t* dims;    /* `rank` of them */
  const int64_t* strides; /* the same, in elements; NULL: row-major without gaps */
} attn_tensor;

/* Names, shapes and addresses are compared with the plan when the arguments are bound. What is set
 * again replaces what was set by that name before. Arguments may be bound any number of times.
 *
 * Dims and strides must be the plan's, with two exceptions. A pool of pages may have fewer pages
 * than the plan's. The rows of a page table may lie further apart (a larger first stride): they are
 * then copied at each execute, into memory of the binding's, so executes of such a binding must not
 * overlap. */
ATTN_API attn_status attn_arguments_create(attn_arguments** arguments, attn_error* error);
ATTN_API void attn_arguments_destroy(attn_arguments* arguments);
ATTN_API attn_status attn_arguments_tensor(attn_arguments* arguments, const attn_tensor* tensor,
                                           attn_error* error);
/* A DLTensor (of dlpack.h; that of a DLManagedTensor or DLManagedTensorVersioned), which is not
 * kept: who owns it must keep its memory. Errors: binding, naming the tensor, for memory that is
 * not CUDA's, a dtype that no plan has, vectors (lanes), and what contradicts itself; when it is
 * bound, for another device than the runtime's. */
ATTN_API attn_status attn_arguments_dlpack(attn_arguments* arguments, const char* name,
                                           const void* dl_tensor, attn_error* error);
/* Other memory for a tensor that was set before; one that was not has the dtype, dims and strides
 * that the plan wants. */
ATTN_API attn_status attn_arguments_address(attn_arguments* arguments, const char* name, void* data,
                                            attn_error* error);
ATTN_API attn_status attn_arguments_param(attn_arguments* arguments, const char* name,
                                          attn_dtype dtype, double value, attn_error* error);

/* ---- Binding: checked arguments with a workspace ---- */

typedef struct attn_binding attn_binding;

typedef int32_t attn_workspace;
enum {
  ATTN_WORKSPACE_OWNED = 0,         /* the binding allocates it, and keeps it */
  ATTN_WORKSPACE_CALLER = 1,        /* `workspace_memory`, not used by anything at the same time */
  ATTN_WORKSPACE_STREAM_ORDERED = 2 /* from the device's pool at every execute, and given back */
};

typedef struct attn_bind_options {
  size_t size;
  attn_workspace workspace;
  int32_t reserved;       /* 0 */
  void* workspace_memory; /* workspace_bytes of it, at a multiple of 256 */
  /* How many sets of addresses the binding keeps prepared, the least recently used making room: see
   * attn_binding_set_addresses. At most 4096; 0: 8. */
  uint64_t kept_addresses;
} attn_bind_options;

/* Checks all that could make a kernel read or write the wrong memory, and makes all that an execute
 * needs. `options` may be NULL; the arguments are not needed any more afterwards. Tensors stay the
 * caller's, and must outlive the executes that use them. The binding keeps alive what it needs of
 * its executable. Where a score depends on values of captured tensors or params that could lead
 * outside a tensor, these are looked at, and the call waits for the device.
 * Errors: binding (each mistake names its tensor: the first is the message, the others are notes),
 * cuda, cudnn. */
ATTN_API attn_status attn_binding_create(const attn_executable* executable,
                                         const attn_arguments* arguments,
                                         const attn_bind_options* options, attn_binding** binding,
                                         attn_error* error);
ATTN_API void attn_binding_destroy(attn_binding* binding);

/* Executes from now on use `value`. Errors: binding, for an unknown name or a value that its type
 * cannot hold. */
ATTN_API attn_status attn_binding_set_param(attn_binding* binding, const char* name, double value,
                                            attn_error* error);

typedef int32_t attn_check;
enum {
  ATTN_CHECK_ADDRESSES = 0, /* alignment, and that each is memory of the device */
  ATTN_CHECK_NOTHING = 1    /* the caller answers for it */
};

/* Executes from now on use other memory of the same shapes: `count` addresses, in the order in
 * which the executable lists its tensors. Addresses that are among those kept cost nothing, others
 * a microsecond or two: for a binding that goes round N layers, keep N.
 * Errors: binding (another count too), cudnn. */
ATTN_API attn_status attn_binding_set_addresses(attn_binding* binding, void* const* addresses,
                                                size_t count, attn_check check, attn_error* error);

/* Executes from now on use this workspace of the caller's; what the binding owned goes, once the
 * device is done with it; after attn_binding_cuda_graph only with the binding. Errors: binding,
 * cudnn. */
ATTN_API attn_status attn_binding_set_workspace(attn_binding* binding, void* memory,
                                                attn_error* error);

/* Enqueues on `stream` and returns without waiting: no lock, no allocation (but that of a
 * stream-ordered workspace), no check of the tensors. May be captured into a CUDA graph, the first
 * time too: then the binding, and the workspace that it had, must outlive the graph's launches.
 * With a stream-ordered workspace of the application's allocator it may not: that is
 * invalid_argument; use a workspace of the binding's own, or the caller's. Executes on several
 * streams that may overlap need a workspace, outputs and, where rows of page tables are copied, a
 * binding each. Errors: cuda, cudnn; after one the outputs are undefined. */
ATTN_API attn_status attn_binding_execute(attn_binding* binding, void* stream, attn_error* error);

/* One execute as a CUgraph, to be a child node of the caller's (cuGraphAddChildGraphNode, which
 * copies it): with the addresses, params and workspace of now. It belongs to the binding, and is
 * valid until the next such call or the binding's end. As for what is captured, the binding and its
 * workspace must outlive the launches; a stream-ordered workspace cannot be in a child node, so
 * such a binding gets one of its own for its graphs. Errors: cuda, cudnn. */
ATTN_API attn_status attn_binding_cuda_graph(attn_binding* binding, void** graph,
                                             attn_error* error);

/* ---- Graph: an execute as a CUDA graph ---- */

typedef struct attn_graph attn_graph;

/* Takes `*binding` over and sets it to NULL. After an error the binding is the caller's still, as
 * it was. Errors: cuda, cudnn. */
ATTN_API attn_status attn_graph_from_binding(attn_binding** binding, attn_graph** graph,
                                             attn_error* error);
/* The same, but takes the binding over whatever the status is: it must not be used or destroyed any
 * more. */
ATTN_API attn_status attn_graph_capture(attn_binding* binding, attn_graph** graph,
                                        attn_error* error);
ATTN_API void attn_graph_destroy(attn_graph* graph);
/* As those of the binding. The graph is brought up to date by the next launch. */
ATTN_API attn_status attn_graph_set_param(attn_graph* graph, const char* name, double value,
                                          attn_error* error);
ATTN_API attn_status attn_graph_set_addresses(attn_graph* graph, void* const* addresses,
                                              size_t count, attn_check check, attn_error* error);
ATTN_API attn_status attn_graph_launch(attn_graph* graph, void* stream, attn_error* error);

/* ---- Picker: one attention at sizes that change ---- */

/* Knows the plans of one spec for several sizes, answers with the one that serves the sizes at
 * hand, and can have the missing ones built. Any number of threads may pick at once; sizes that
 * were picked before cost a look-up, whatever is being built or loaded. */
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

/* What a plan is for. Frozen: it lies within other structures, so it never grows. */
typedef struct attn_shape {
  int64_t sizes[ATTN_DIM_COUNT]; /* by attn_dim */
  /* Bit `1 << dim` for each of B, Sq and Skv of which the plan serves smaller sizes too. */
  uint32_t padded;
  int32_t reserved;
} attn_shape;

typedef struct attn_picker_options {
  size_t size;
  /* The program that builds what is missing, in a process of its own, looked up in PATH when it has
   * no slash: "attnc" itself, or a script that execs it. It uses the cuDNN of the runtime. NULL:
   * nothing is ever built. */
  const char* attnc;
  /* What is built for: a target that attnc knows by name, or a file that ends in ".json". NULL:
   * that of the plans for this device's compute capability; else the GPU that attnc finds. */
  const char* target;
  const char* const* arguments; /* more of `attnc compile`: "--direction", "both" */
  size_t argument_count;
  uint64_t most_built;     /* shapes; beyond them the one used longest ago goes. 0: 256 */
  int32_t timeout_seconds; /* of a build, which is then killed; 0: 300 */
  int32_t reserved;        /* 0 */
  /* Of the file that the picker is made from, as in attn_load_options; not of what is built. */
  const char* sha256;
  attn_verify_callback verify;
  void* verify_user;
} attn_picker_options;

/* From the plans of a file: of several shapes, for each the same directions. `options` may be NULL.
 * Nothing is loaded before it is picked. The picker holds the runtime.
 *
 * With `attnc`, a plan for another GPU or another version of cuDNN is ignored, and so is the other
 * direction of a training pair: it is built where the policy allows it, and named in the notes of
 * plan_shape where not. Without `attnc` picking it is the error plan_device or plan_version.
 *
 * Errors: io, plan_truncated, plan_damaged, plan_foreign, plan_newer, plan_refused;
 * invalid_argument when the plans are not of one spec, and for options that are not valid. */
ATTN_API attn_status attn_picker_load_file(attn_runtime* runtime, const char* path,
                                           const attn_picker_options* options, attn_picker** picker,
                                           attn_error* error);
/* The same with the contents of a plan file, which are not needed any more afterwards. */
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
  const attn_spec_binding* bindings; /* parameters, and sizes that do not change */
  size_t binding_count;
  size_t binding_bytes; /* sizeof(attn_spec_binding); 0: that of the first attn.h, 16 */
} attn_spec;

/* Without a plan: all are built. Errors: invalid_argument, also without `attnc`. */
ATTN_API attn_status attn_picker_create(attn_runtime* runtime, const attn_spec* spec,
                                        const attn_picker_options* options, attn_picker** picker,
                                        attn_error* error);
/* Nobody may be using it. Kills what is being built in the background, and waits for its end. What
 * was picked lives on. */
ATTN_API void attn_picker_destroy(attn_picker* picker);

typedef int32_t attn_build;
enum {
  ATTN_BUILD_NEVER = 0,
  ATTN_BUILD_NOW = 1,          /* the call returns when the plan is there */
  ATTN_BUILD_IN_BACKGROUND = 2 /* the call returns at once, and a later one finds the plan */
};

typedef struct attn_pick_policy {
  size_t size;
  /* Where there is no plan of these sizes and no larger one that serves them; with IN_BACKGROUND
   * also where there is only a larger one, which is the answer meanwhile. */
  attn_build build;
  int32_t exact_only;    /* not 0: plans of larger sizes are not used */
  int32_t retry;         /* not 0: what failed to build before is built again */
  int32_t reserved;      /* 0 */
  size_t dim_size_bytes; /* sizeof(attn_dim_size); 0: that of the first attn.h, 16 */
} attn_pick_policy;

typedef int32_t attn_fit;
enum {
  ATTN_FIT_EXACT = 0,
  /* The plan is for larger sizes. Tensors are bound with its dims and strides, and begin with what
   * there is along each dimension; lengths say how much that is, and are 0 for the batches that
   * there are not. The rest of q, k, v, do and tensors of floats must be finite, and of tensors of
   * integers what could be there (0; of a monotone one the last element; in a page table a page).
   * The rest of outputs and gradients means nothing. */
  ATTN_FIT_BUCKET = 1,
  ATTN_FIT_BUILT = 2 /* it was built for this call */
};

typedef struct attn_picked {
  size_t size;
  /* With a reference each for the caller, to release; NULL where there is no plan of that
   * direction. The same plan is the same handle as long as the picker has it. */
  attn_executable* forward;
  attn_executable* backward;
  attn_shape shape; /* of the plan */
  attn_fit fit;
  int32_t reserved;
} attn_picked;

/* The plan of these `count` sizes; else, when B, Sq and Skv are all given, the one with the least
 * work that contains them; else one that is built. A dimension that is not given is what the plans
 * have. `policy` may be NULL.
 * Errors: plan_shape when nothing serves the sizes, with the shapes that there are and what would
 * help; plan_pending while the plan is being built and no other serves; invalid_argument when a
 * size would have to be guessed; of a build what attnc reports, worker when it died or took too
 * long: the answer from then on, unless `retry`; those of attn_executable_load_file. */
ATTN_API attn_status attn_picker_pick(attn_picker* picker, const attn_dim_size* sizes, size_t count,
                                      const attn_pick_policy* policy, attn_picked* picked,
                                      attn_error* error);
/* The shapes that there are plans for, built ones included: the first `capacity` of them, and how
 * many there are. `shape_bytes`: sizeof(attn_shape), as far as each is filled. */
ATTN_API attn_status attn_picker_list(const attn_picker* picker, attn_shape* shapes,
                                      size_t shape_bytes, size_t capacity, size_t* count,
                                      attn_error* error);
/* The same with shapes of the size that the first attn.h gave them. */
ATTN_API attn_status attn_picker_shapes(const attn_picker* picker, attn_shape* shapes,
                                        size_t capacity, size_t* count, attn_error* error);

/* ---- Conveniences ----
 * For small programs and tests, so that they build without CUDA. An application has its own streams
 * and memory, from anywhere. */

typedef struct attn_memory attn_memory;
typedef struct attn_stream attn_stream;

/* Device memory at a multiple of 256 bytes. Contents undefined. Errors: cuda. */
ATTN_API attn_status attn_memory_allocate(const attn_runtime* runtime, size_t bytes,
                                          attn_memory** memory, attn_error* error);
ATTN_API void attn_memory_free(attn_memory* memory);
ATTN_API void* attn_memory_data(const attn_memory* memory); /* its address; NULL of NULL */
/* Between the host and bytes `offset ..` of the memory. When they return it is done; they do not
 * wait for kernels on streams of attn_stream_create. Errors: invalid_argument outside the memory,
 * cuda. */
ATTN_API attn_status attn_memory_upload(attn_memory* memory, size_t offset, const void* source,
                                        size_t bytes, attn_error* error);
ATTN_API attn_status attn_memory_download(const attn_memory* memory, size_t offset, void* target,
                                          size_t bytes, attn_error* error);

/* A stream that does not wait for the default stream. */
ATTN_API attn_status attn_stream_create(const attn_runtime* runtime, attn_stream** stream,
                                        attn_error* error);
ATTN_API void attn_stream_destroy(attn_stream* stream);
ATTN_API void* attn_stream_handle(const attn_stream* stream); /* CUstream; NULL of NULL */
ATTN_API attn_status attn_stream_synchronize(const attn_stream* stream, attn_error* error);

/* `count` elements on the host, one behind the other, from and to f32. Floats round to nearest
 * even. Errors: invalid_argument for a dtype or value that cannot be converted. */
ATTN_API attn_status attn_elements_from_f32(attn_dtype dtype, const float* values, size_t count,
                                            void* elements, attn_error* error);
ATTN_API attn_status attn_elements_to_f32(attn_dtype dtype, const void* elements, size_t count,
                                          float* values, attn_error* error);

#ifdef __cplusplus
}
#endif

#endif
