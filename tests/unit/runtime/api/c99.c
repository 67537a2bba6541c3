/* attn.h as seen by a C program, compiled with strict options. */
#include "c99.h"

#include <attn.h>
#include <string.h>

/* The options structure with its first fields only. */
typedef struct {
  size_t size;
  const char* cudnn_folder;
  int32_t device;
  int32_t most_handles;
} older_options;

int c99_versions_agree(void) {
  return attn_api_version() == ATTN_API_VERSION && strlen(attn_version()) > 0;
}

int32_t c99_open_as_older_caller(const char* cudnn_folder, int32_t device, attn_error* error) {
  older_options options = {sizeof options, NULL, 0, 0};
  attn_runtime* runtime = NULL;
  attn_status status;
  options.cudnn_folder = cudnn_folder;
  options.device = device;
  status = attn_runtime_open((const attn_runtime_options*)&options, &runtime, error);
  attn_runtime_release(runtime);
  return status;
}
