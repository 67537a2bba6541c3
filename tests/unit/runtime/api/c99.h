/* Functions of c99.c. */
#ifndef ATTN_TESTS_C99_H
#define ATTN_TESTS_C99_H

#include <attn.h>

#ifdef __cplusplus
extern "C" {
#endif

int c99_versions_agree(void);
/* Passes a structure smaller than that of attn.h. */
int32_t c99_open_as_older_caller(const char* cudnn_folder, int32_t device, attn_error* error);

#ifdef __cplusplus
}
#endif
#endif
