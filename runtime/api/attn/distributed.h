/* Distributed: one attention on several GPUs. Part of attn.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "binding.h"

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
