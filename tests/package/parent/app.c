/* Opens a runtime, so that all of the library is linked. */
#include <attn.h>
#include <stdio.h>

int main(void) {
  attn_error* error = attn_error_create();
  attn_runtime* runtime = NULL;
  attn_status status = attn_runtime_open(NULL, &runtime, error);
  printf("%s\n", attn_status_name(status));
  attn_runtime_release(runtime);
  attn_error_destroy(error);
  return attn_api_version() == ATTN_API_VERSION ? 0 : 1;
}
