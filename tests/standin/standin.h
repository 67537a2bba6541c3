/* Control interface of the stand-ins for cuDNN, the CUDA driver and NCCL, for tests. Each library
 * exports a function that returns its table: standin_cudnn(), standin_cuda() and standin_nccl(),
 * found with dlsym (see standins.h). Thread-safe. Texts are written as by snprintf: at most `size`
 * bytes including the terminating zero; returns the full length. */
#ifndef ATTN_TESTS_STANDIN_STANDIN_H
#define ATTN_TESTS_STANDIN_STANDIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { STANDIN_ANY = -1 };

/* A rule for calls: a call waits (delay, then until release()), then returns `status`. With status
 * 0 the call continues normally. */
typedef struct StandinRule {
  const char*
      function; /* "cudnnBackendFinalize", "cuMemAlloc"; null: any whose result must be checked */
  int kind;     /* cudnnBackendDescriptorType_t of the descriptor, or STANDIN_ANY */
  long nth;     /* matching call to act on: 1 is the next, 0 means every call */
  int status;   /* cudnnStatus_t or CUresult */
  const char* words; /* cuDNN's last error text in that case; may be null */
  int delay_ms;
  int block; /* not 0: waits until release() */
} StandinRule;

/* Control of one library. */
typedef struct StandinControl {
  /* Clears rules, counts, violations, the log and settings. Live objects stay alive. */
  void (*reset)(void);
  void (*script)(const StandinRule* rule);
  /* Unblocks all blocked calls and removes blocking rules. */
  void (*release)(void);
  int64_t (*blocked)(void); /* number of calls that wait for release() */

  /* Number of calls since reset(), of a function or (null) of all whose result must be checked. */
  int64_t (*calls)(const char* function, int kind);
  /* Number of live objects: "descriptor", "handle"; "context", "memory", "bytes", "stream",
   * "event", "module", "graph", "graph exec". Null: all except bytes. */
  int64_t (*live)(const char* what);
  /* Violations of the library's API contract, one per line. */
  size_t (*violations)(char* text, size_t size);
  /* While on, the log gets a line per call: "cudnnBackendFinalize EXECUTION_PLAN". Of launches, and
   * of calls that record events or wait for them, it has the number of the stream, and the kernel's
   * name or the number of the event: "cuLaunchKernelEx 89060441849872 attn_ranks_copy", of one that
   * may overlap the launch before it with " overlapping" at the end. */
  void (*record)(int on);
  size_t (*log)(char* text, size_t size);
} StandinControl;

typedef struct StandinCudnn {
  StandinControl control;
  void (*set_version)(int64_t version); /* default 91900 */
  /* Sets the configs that heuristics offer in a mode ("A", "B", "FALLBACK"), as JSON:
   *   {"configs": [{"engine": 5, "knobs": {"24": 3}, "workspace": 256, "status": 3007,
   *                 "words": "last error text when `status` is returned"}],
   *    "surplus": 2, "status": 0, "words": "last error text after the query"}
   * Only "engine" is required. `surplus` configs are announced but not returned. By default mode A
   * offers engine 5 and the others nothing. */
  void (*offer)(const char* mode, const char* json);
  /* Sets the engine count of operation graphs; default 0. */
  void (*set_engines)(int64_t count);
} StandinCudnn;

enum { STANDIN_FORGOTTEN, STANDIN_PINNED, STANDIN_DEVICE, STANDIN_MANAGED };

typedef struct StandinMemory {
  void* start;
  size_t bytes;
  int device;
  int kind;
} StandinMemory;

typedef struct StandinCuda {
  StandinControl control;
  void (*set_devices)(int count, const int* sms); /* default: two of sm 90; at most 8 */
  void (*set_memory)(int64_t bytes);              /* of each device; default 1 GiB */
  /* Declares host memory as pinned, managed or device memory; STANDIN_FORGOTTEN undoes it. */
  void (*declare)(void* address, size_t bytes, int kind);
  /* Finds the allocation of an address. Returns 0 if it is unknown. */
  int (*describe)(const void* address, StandinMemory* memory);

  /* For the stand-in of cuDNN. */
  int (*current_device)(void);    /* of this thread's context; -1: no live context */
  int (*sm_of)(int device);       /* 90 */
  int (*device_of)(void* stream); /* -1: no such stream */
  int (*refuses_waits)(void);     /* whether a capture of this thread forbids calls that may wait */
  /* Calls work(data) now, or at each launch of the graph that captures it; drop(data) at the end.
   * Returns a CUresult. */
  int (*enqueue)(void* stream, const char* what, void (*work)(void*), void (*drop)(void*),
                 void* data);
} StandinCuda;

/* Ranks are threads of one process. An exchange waits for the other ranks in the calling thread, or
 * in the one that launches the graph that captured it, until they come or it is aborted. */
typedef struct StandinNccl {
  StandinControl control; /* live objects: "communicator" */
  void (*make)(int ranks, void** communicators);
  void (*destroy)(void* communicator);
  void (*set_device)(void* communicator, int device); /* default 0 */
  /* What ncclCommGetAsyncError answers: ncclInProgress `polls` times, then `result`. While it is in
   * progress, calls that enqueue return ncclInProgress. */
  void (*set_state)(void* communicator, int polls, int result);
  int (*aborts)(const void* communicator); /* number of calls of ncclCommAbort */
} StandinNccl;

typedef const StandinNccl* (*StandinNcclFunction)(void);
typedef const StandinCudnn* (*StandinCudnnFunction)(void);
typedef const StandinCuda* (*StandinCudaFunction)(void);

#ifdef __cplusplus
}
#endif
#endif
