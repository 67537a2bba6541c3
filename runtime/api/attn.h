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
 * not know. A structure that the library fills is filled as far as `size` goes.
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
  ATTN_STATUS_CUDA = 5,        /* the driver reported a failure, or is missing */
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
  ATTN_STATUS_PLAN_PENDING = 19    /* the plan for these sizes is still being built */
};

/* "plan_version"; "unknown" for a number that is no status. */
ATTN_API const char* attn_status_name(attn_status status);
/* What attnc would exit with: 0 ok, 2 usage, 3 unsupported, 4 CUDA, cuDNN or the system, 6 an
 * unreadable plan, 70 a bug. */
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
/* JSON, or "": of a failed cuDNN call {"call", "status", "reason"}, with the stage and the place.
 */
ATTN_API const char* attn_error_payload(const attn_error* error);
/* The message, and a line "  note: .." for each note. */
ATTN_API const char* attn_error_text(const attn_error* error);

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

typedef struct attn_load_options {
  size_t size;
  attn_direction direction; /* which plan of a training pair */
  int32_t reserved;         /* 0 */
} attn_load_options;

/* Nothing is compiled. `options` may be NULL. The result has one reference, and keeps alive what it
 * needs of the runtime. Errors: io, plan_truncated, plan_damaged, plan_foreign, plan_newer;
 * plan_device and plan_version when the plan does not fit the machine; invalid_argument when it has
 * no plan of that direction; cuda, cudnn. */
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
  ATTN_ROLE_CONTROL = 7, /* lengths, offsets, page tables, seeds */
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

/* Names, shapes and addresses are compared with the plan when the arguments are bound. */
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
 * which the executable lists its tensors. Addresses that were seen not long ago cost nothing.
 * Errors: binding (another count too), cudnn. */
ATTN_API attn_status attn_binding_set_addresses(attn_binding* binding, void* const* addresses,
                                                size_t count, attn_check check, attn_error* error);

/* Executes from now on use this workspace of the caller's; what the binding owned goes, once the
 * device is done with it. Errors: binding, cudnn. */
ATTN_API attn_status attn_binding_set_workspace(attn_binding* binding, void* memory,
                                                attn_error* error);

/* Enqueues on `stream` and returns without waiting: no lock, no allocation (but that of a
 * stream-ordered workspace), no check of the tensors. May be captured into a CUDA graph, the first
 * time too: then the binding, and the workspace that it had, must outlive the graph's launches. Errors: cuda, cudnn; after one
 * the outputs are undefined. */
ATTN_API attn_status attn_binding_execute(attn_binding* binding, void* stream, attn_error* error);

/* ---- Graph: an execute as a CUDA graph ---- */

typedef struct attn_graph attn_graph;

/* Takes the binding over, which must not be used or destroyed any more, whatever the status is.
 * Errors: cuda, cudnn. */
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

/* What a plan is for. */
typedef struct attn_shape {
  int64_t sizes[ATTN_DIM_COUNT]; /* by attn_dim */
  /* Bit `1 << dim` for each of B, Sq and Skv of which the plan serves smaller sizes too. */
  uint32_t padded;
  int32_t reserved;
} attn_shape;

typedef struct attn_picker_options {
  size_t size;
  /* The program that builds what is missing, in a process of its own, looked up in PATH when it has
   * no slash: "attnc". It uses the cuDNN of the runtime. NULL: nothing is ever built. */
  const char* attnc;
  /* What is built for: a target that attnc knows by name, or a file that ends in ".json". NULL:
   * that of the plans; without plans the GPU that attnc finds. */
  const char* target;
  const char* const* arguments; /* more of `attnc compile`: "--direction", "both" */
  size_t argument_count;
  uint64_t most_built;     /* shapes; beyond them the one used longest ago goes. 0: 256 */
  int32_t timeout_seconds; /* of a build, which is then killed; 0: 300 */
  int32_t reserved;        /* 0 */
} attn_picker_options;

/* From the plans of a file: of several shapes, for each the same directions. `options` may be NULL.
 * Nothing is loaded before it is picked. The picker holds the runtime. Errors: io, plan_truncated,
 * plan_damaged, plan_foreign, plan_newer; invalid_argument when the plans are not of one spec. */
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
  int32_t exact_only; /* not 0: plans of larger sizes do not serve */
  int32_t retry;      /* not 0: what failed to build before is built again */
  int32_t reserved;   /* 0 */
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
 * many there are. */
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
