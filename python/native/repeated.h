/* Calls of attention that were made before, as functions of Python: a call is found by its settings
 * and its tensors and enqueued in one step, and so is a build of a schedule. The functions are
 * builtin ones, which take their arguments without a conversion by ctypes.
 *
 * All functions need Python's global lock (ctypes.PyDLL). Objects are PyObject*. */
#ifndef ATTN_PYTHON_REPEATED_H
#define ATTN_PYTHON_REPEATED_H

#include "attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tensors of a call, its settings, its bounds and the stream: arguments of `run`, in this order. */
enum { ATTN_REPEATED_TENSORS = 10, ATTN_REPEATED_SETTINGS = 4 };

/* What `build` needs: the binding whose lengths a schedule is made of, its addresses, one for each
 * tensor of its executable, and the places of cu_seqlens_q and lengths_kv among them. `ones`: the
 * address for no cu_seqlens_q. All NULL or 0: there is no `build`. */
typedef struct attn_repeated_build {
  attn_schedule* schedule;
  attn_binding* binding;
  void* const* addresses;
  size_t address_count;
  int32_t starts, lengths;
  void* ones;
  int64_t most_sequences;
  int32_t device_type, device; /* of DLPack */
} attn_repeated_build;

/* Makes a capsule, a new reference, or returns NULL with Python's error set. `exchange`: as in
 * bound_call.h. `words`: a tuple (int, tuple, None, the type of tensors). `kept` is what the build
 * uses, and lives as long. For one thread at a time, and so are its functions. */
ATTN_API void* attn_repeated_create(const void* exchange, const attn_repeated_build* build,
                                    void* words, void* kept);

/* Sets the calls, in the order in which they are tried: a tuple of tuples
 *   (softmax_scale, causal, window_size, softcap, least_rows, most_rows, least_keys, most_keys,
 *    stream or None: any, attn_bound_call, attn_schedule to make before or None, object to keep).
 * Returns 0, or -1 with Python's error set. */
ATTN_API int32_t attn_repeated_set(void* capsule, void* calls);

/* New references to functions, which keep the capsule. They return a status: that of
 * attn_bound_call_run or attn_schedule_build_shared, or ATTN_CALL_UNFIT: nothing was enqueued, since no
 * call fits, or an argument is none that these take.
 *   run(q, .., slopes, softmax_scale, causal, window_size, softcap, max_seqlen_q, max_seqlen_k,
 *       stream): tensors as in Tensors of varlen_arguments.py.
 *   build(cu_seqlens_q or None, seqused_k, num_sequences: int, tensor or None,
 *         shared_keys: int or None, stream) */
ATTN_API void* attn_repeated_run(void* capsule);
ATTN_API void* attn_repeated_build_function(void* capsule);

/* The error of the last of its functions that returned another status. */
ATTN_API attn_error* attn_repeated_error(void* capsule);

#ifdef __cplusplus
}
#endif

#endif
