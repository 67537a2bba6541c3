/* The version of the interface, and how its functions are exported. Part of attn.h. */
#pragma once

#include <stdint.h>

/* Exported by the library, with C linkage. */
#ifdef __cplusplus
#define ATTN_C extern "C"
#else
#define ATTN_C
#endif
#if defined(__GNUC__)
#define ATTN_API ATTN_C __attribute__((visibility("default")))
#else
#define ATTN_API ATTN_C
#endif

/* Version of this header. It and the library's soname increase only when something existing is
 * changed or removed. */
#define ATTN_API_VERSION 1

ATTN_API int32_t attn_api_version(void); /* ATTN_API_VERSION of the library */
ATTN_API const char* attn_version(void); /* of the library, three numbers: "1.2.3" */
