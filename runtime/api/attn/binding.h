/* Binding: checked arguments and a workspace. Part of attn.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "arguments.h"
#include "executable.h"

typedef struct attn_binding attn_binding;
struct attn_schedule; /* schedule.h */

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
  /* A schedule that executes use: as after attn_binding_use_schedule, but the workspace that the
   * binding owns never has memory for what the schedule replaces. NULL: none. */
  const struct attn_schedule* schedule;
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
 * executable's tensors. Switching to a kept address set is free; preparing a new one takes a
 * microsecond or two, less where only few addresses are others and all kernels are attnc's, and
 * allocates nothing then: for a binding shared by N layers, keep N.
 * Errors: binding (also if `count` is wrong), cudnn, cuda; the addresses stay as they were. */
ATTN_API attn_status attn_binding_set_addresses(attn_binding* binding, void* const* addresses,
                                                size_t count, attn_check check, attn_error* error);

/* The same with other strides. `strides`: for each of the executable's tensors NULL, which keeps
 * them, or as many strides in elements as it has dims; only a tensor with bound strides
 * (attn_tensor_info.bound_strides) may be given some. Other rows of a page table take about a
 * microsecond; strides of q, k, v and o, of which kernels have tensor maps, about as long as a
 * binding. Errors: as above, also binding for strides that a binding refuses; all stays as it was.
 */
ATTN_API attn_status attn_binding_set_views(attn_binding* binding, void* const* addresses,
                                            const int64_t* const* strides, size_t count,
                                            attn_check check, attn_error* error);

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

/* Looks at what lengths, cu_seqlens and page tables hold, which executes do not: a sequence with
 * more rows or keys than the plan has, rows that begin below 0 or fall, and pages in use that the
 * bound pool does not have; of the sequences that the schedule in use was last built for. For
 * debugging: runs a kernel behind what `stream` was given before, and waits for it (NULL: for the
 * device). Errors: binding, naming the tensor and the place, also if the stream is being captured;
 * unsupported on a GPU older than compute capability 8.0; cuda. */
ATTN_API attn_status attn_binding_check(attn_binding* binding, void* stream, attn_error* error);

/* Returns one execute as a CUgraph with the current addresses, params and workspace, for use as a
 * child node (cuGraphAddChildGraphNode copies it). The binding owns it; it is valid until the next
 * such call or until the binding is destroyed. The binding and its workspace must outlive the
 * launches. A child node cannot hold a stream-ordered workspace, so such a binding allocates its
 * own workspace for its graphs. Errors: cuda, cudnn. */
ATTN_API attn_status attn_binding_cuda_graph(attn_binding* binding, void** graph,
                                             attn_error* error);
