/* Schedule: which blocks of threads compute what, made once for many bindings. Part of attn.h.
 *
 * An executable whose lengths are bound (lengths, cu_seqlens, page tables) begins with a small
 * kernel that reads them and divides the work. Layers of a model have the same lengths, so one
 * schedule can serve all of them:
 *
 *   attn_schedule_create(executable, NULL, &schedule, error);
 *   for each layer: attn_binding_use_schedule(bindings[layer], schedule, error);
 *   for each step of the model, or once in a CUDA graph:
 *     attn_schedule_build(schedule, bindings[0], NULL, -1, stream, error);
 *     for each layer: attn_binding_execute(bindings[layer], stream, error); */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "binding.h"
#include "executable.h"

/* Device memory with a schedule. It serves one thread at a time. Executes that use it must not
 * overlap each other or a build: they share memory in which parts of results are kept. */
typedef struct attn_schedule attn_schedule;

typedef struct attn_schedule_options {
  size_t size;
  /* Most parts that the keys of a tile of rows are divided into, for different blocks of threads;
   * 0: no limit, 1: none is divided. */
  int64_t max_parts;
  /* Keys of a part, in whole blocks of keys of the kernel. Results of a sequence then do not depend
   * on the other sequences of the batch. 0: parts are as long as balances the GPU. */
  int64_t split_keys;
  /* Blocks of threads that attention does not use, and leaves to other kernels. */
  int64_t sm_margin;
  /* With split_keys: the most rows and keys that all sequences have together, which decide how much
   * memory is allocated. capacity_rows may be 0: as many as the plan has. */
  int64_t capacity_rows;
  int64_t capacity_keys;
} attn_schedule_options;

/* Creates a schedule for executables of this plan; `options` may be NULL. Allocates device memory,
 * and may wait for the device. The schedule keeps what it needs of the executable alive. Errors:
 * unsupported if the executable takes no schedule; invalid_argument, naming the option, also if
 * parts of split_keys keys are too many for the capacities; cuda. */
ATTN_API attn_status attn_schedule_create(const attn_executable* executable,
                                          const attn_schedule_options* options,
                                          attn_schedule** schedule, attn_error* error);
/* Bindings that use it keep it alive. CUDA graphs that were captured with it must not be launched
 * any more if none does. */
ATTN_API void attn_schedule_destroy(attn_schedule* schedule);

/* Enqueues the kernel that makes the schedule of the lengths that `binding` has; executes on
 * `stream` after it use it. Their lengths and params must be the same. The sequences that are
 * computed are the first of the plan's B: as many as the i32 at `device_sequences` says, in device
 * memory, if it is not NULL (`sequences` is -1 then), else `sequences`, -1: all. Rows of others are
 * not written. Reads nothing on the host, waits for nothing and allocates nothing; may be captured
 * into a CUDA graph, the first time too: each launch reads the lengths and the number at
 * `device_sequences`, and the schedule and the binding must outlive it. An address is checked, and
 * written to the device, the first time that it is given: of the first 15 all builds but that are
 * one launch. attn_binding_check looks at the sequences of the last call. Errors: binding if
 * the binding is of a plan with another schedule, or `device_sequences` is not memory of the
 * device; invalid_argument; cuda. */
ATTN_API attn_status attn_schedule_build(attn_schedule* schedule, attn_binding* binding,
                                         const int32_t* device_sequences, int64_t sequences,
                                         void* stream, attn_error* error);

enum {
  ATTN_SHARED_BESIDE = -1 /* the number of shared keys is the second i32 at `device_sequences` */
};

/* The same where all sequences that are computed begin with the same `shared_keys` keys, in the
 * same pages: such as a system prompt. These are read once for all of them, in whole blocks of keys
 * of the kernel, by the page table of the first sequence. `shared_keys` is 0 to 2^31 - 1, or
 * ATTN_SHARED_BESIDE, so that launches of a CUDA graph read it; 0: none. Page tables are not
 * compared. If some row does not see all of these keys (those before its own, if masks are causal),
 * or memory is too small, sequences read them themselves, and the flags say so. What is shared
 * changes the order of sums. The first 15 kinds of such builds are one launch but the first time.
 * Errors: those of attn_schedule_build; unsupported, with the reason, if shared_keys is not 0 and
 * the plan cannot read keys once (rows that are not packed, keys in no pages, scores that depend on
 * the row); invalid_argument if the schedule has split_keys. */
ATTN_API attn_status attn_schedule_build_shared(attn_schedule* schedule, attn_binding* binding,
                                                const int32_t* device_sequences, int64_t sequences,
                                                int64_t shared_keys, void* stream,
                                                attn_error* error);

/* Later executes of the binding, and graphs that are made of it, use the schedule instead of making
 * their own; NULL: they make their own again. Until the schedule is built, executes are errors. A
 * workspace of the binding's own is smaller with a schedule: before the first execute its memory is
 * freed; see also attn_bind_options.schedule.
 * Errors: binding if the schedule is of a plan with another one; cuda, cudnn. */
ATTN_API attn_status attn_binding_use_schedule(attn_binding* binding, const attn_schedule* schedule,
                                               attn_error* error);

enum {
  ATTN_SCHEDULE_UNDIVIDED = 1, /* tiles were not divided, for want of memory; results are right */
  ATTN_SCHEDULE_TOO_LONG = 2,  /* a length is beyond the plan's Sq or Skv; results are undefined */
  ATTN_SCHEDULE_NOT_SHARED = 4 /* sequences read shared keys themselves; results are right */
};

/* What did not fit when the schedule was last built: the sum of these flags. Waits for what
 * `stream` was given before (NULL: for the device). Errors: cuda. */
ATTN_API attn_status attn_schedule_flags(const attn_schedule* schedule, void* stream,
                                         uint32_t* flags, attn_error* error);
