/* How tests steer the stand-ins for cuDNN and the CUDA driver, and read what they saw. Each library
 * exports one function that gives its table: standin_cudnn() and standin_cuda(), found by dlsym
 * (standins.h does). Safe to use from any thread. Texts are written as snprintf does: at most
 * `size` bytes with the terminating zero, and the answer is the length of all there is. */
#ifndef ATTN_TESTS_STANDIN_STANDIN_H
#define ATTN_TESTS_STANDIN_STANDIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { STANDIN_ANY = -1 };

/* What happens to one call. It waits first (delay, then until release()), then returns `status`; a
 * status of 0 lets the call do what it is for. */
typedef struct StandinRule {
  const char*
      function;      /* "cudnnBackendFinalize", "cuMemAlloc"; null: any that a caller must check */
  int kind;          /* cudnnBackendDescriptorType_t of the descriptor, or STANDIN_ANY */
  long nth;          /* of the calls from now on that match: 1 is the next, 0 every one */
  int status;        /* cudnnStatus_t or CUresult */
  const char* words; /* then cuDNN's last error text; may be null */
  int delay_ms;
  int block; /* not 0: until release() */
} StandinRule;

/* Of one library. */
typedef struct StandinControl {
  /* Forgets rules, counts, violations, the log and settings. What is alive stays. */
  void (*reset)(void);
  void (*script)(const StandinRule* rule);
  /* Those that are blocked go on, and rules that block are gone. */
  void (*release)(void);
  int64_t (*blocked)(void); /* calls that wait for release() */

  /* Since reset(). Of a function or, when null, of all that a caller must check. */
  int64_t (*calls)(const char* function, int kind);
  /* What was made and not destroyed: "descriptor", "handle"; "context", "memory", "bytes",
   * "stream", "event", "module", "graph", "graph exec". Null: all but bytes. */
  int64_t (*live)(const char* what);
  /* Breaches of the library's contract, one a line: what nothing in a program may ever do. */
  size_t (*violations)(char* text, size_t size);
  /* While on, each call is a line: "cudnnBackendFinalize EXECUTION_PLAN". */
  void (*record)(int on);
  size_t (*log)(char* text, size_t size);
} StandinControl;

typedef struct StandinCudnn {
  StandinControl control;
  void (*set_version)(int64_t version); /* 91900 unless set */
  /* What heuristics offer in a mode ("A", "B", "FALLBACK"), as JSON:
   *   {"configs": [{"engine": 5, "knobs": {"24": 3}, "workspace": 256, "status": 3007,
   *                 "words": "last error text when `status` is returned"}],
   *    "surplus": 2, "status": 0, "words": "last error text after the query"}
   * All but "engine" may be absent. `surplus` are announced and not filled. Unless set, mode A
   * offers engine 5 and the others nothing. */
  void (*offer)(const char* mode, const char* json);
  /* How many engines the operation graph says that there are; 0 unless set. */
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
  void (*set_devices)(int count, const int* sms); /* two of sm 90 unless set; at most 8 */
  void (*set_memory)(int64_t bytes);              /* of each device; 1 GiB unless set */
  /* Host memory as the driver would have pinned or made managed; STANDIN_FORGOTTEN undoes it. */
  void (*declare)(void* address, size_t bytes, int kind);
  /* What an address lies in; 0 when the driver does not know it. */
  int (*describe)(const void* address, StandinMemory* memory);

  /* For the stand-in of cuDNN. */
  int (*current_device)(void);    /* of this thread's context; -1: none that is alive */
  int (*sm_of)(int device);       /* 90 */
  int (*device_of)(void* stream); /* -1: no such stream */
  int (*is_capturing)(void);      /* this thread has a stream that captures */
  /* work(data), now or whenever the graph that captures it is launched; drop(data) at the end. The
   * answer is a CUresult. */
  int (*enqueue)(void* stream, const char* what, void (*work)(void*), void (*drop)(void*),
                 void* data);
} StandinCuda;

typedef const StandinCudnn* (*StandinCudnnFunction)(void);
typedef const StandinCuda* (*StandinCudaFunction)(void);

#ifdef __cplusplus
}
#endif
#endif
