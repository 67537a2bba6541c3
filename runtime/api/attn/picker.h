/* Picker: one attention at varying sizes. Part of attn.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "arguments.h"
#include "executable.h"

/* Holds the plans of one spec for several sizes, selects the one that serves given sizes, and can
 * build missing ones. Any number of threads may pick at once. Picking known sizes is a look-up and
 * never waits for a build or load. */
typedef struct attn_picker attn_picker;

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

/* Chooses which of `count` shapes serves the wanted sizes, as attn_picker_pick does among its
 * plans, which need not exist: rounds sizes to those that plans are built for. `wanted->sizes` has
 * -1 for a size that is not given, and `padded` of it is not used. `index` receives the place of
 * the shape, `count` if none serves. Errors: invalid_argument, also if a size would have to be
 * guessed. */
ATTN_API attn_status attn_shape_choose(const attn_shape* shapes, size_t count,
                                       const attn_shape* wanted, size_t* index, attn_error* error);
/* Chooses the plans of an open file that serve a call on a GPU of compute capability `sm` / 10: of
 * exactly the wanted sizes (-1: not given), and with the dtypes, dims and strides of the tensors
 * in `arguments`, which may be NULL; of tensors with bound strides the dtypes count. `forward` and
 * `backward` receive indices for attn_executable_load_plan, -1 where there is none.
 * Errors: as attn_shape_choose. */
ATTN_API attn_status attn_plan_choose(const attn_plan* plan, int32_t sm, const attn_shape* wanted,
                                      const attn_arguments* arguments, int64_t* forward,
                                      int64_t* backward, attn_error* error);
