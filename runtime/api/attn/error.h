/* Statuses, and why a call failed. Part of attn.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "version.h"

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
