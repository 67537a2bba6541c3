/* The smallest application in C: load a plan file, bind device memory by name, execute, read back.
 *
 *   attnc compile specs/causal.attn --target native -o causal.attnplan
 *   embed_c causal.attnplan
 *
 * Works with every plan without params: floats are 0.5, integers 0. Prints the start of each
 * output.
 */
#include <attn.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_TENSORS 64

typedef struct {
  attn_tensor_info info;
  size_t elements; /* in memory, gaps included */
  attn_memory* memory;
} tensor;

typedef struct {
  attn_runtime* runtime;
  attn_executable* executable;
  attn_arguments* arguments;
  attn_binding* binding;
  attn_stream* stream;
  size_t tensor_count;
  tensor tensors[MOST_TENSORS];
} application;

static size_t storage_elements(const attn_tensor_info* info) {
  size_t last = 0;
  for (int32_t axis = 0; axis < info->rank; ++axis) {
    if (info->dims[axis] == 0) return 0;
    last += (size_t)((info->dims[axis] - 1) * info->strides[axis]);
  }
  return last + 1;
}

static attn_status fill(tensor* of, float value, attn_error* error) {
  const size_t bytes = of->elements * attn_dtype_bytes(of->info.dtype);
  float* values = malloc(of->elements * sizeof *values);
  void* elements = malloc(bytes);
  attn_status status = ATTN_STATUS_OUT_OF_MEMORY;
  if (values != NULL && elements != NULL) {
    for (size_t i = 0; i < of->elements; ++i) values[i] = value;
    status = attn_elements_from_f32(of->info.dtype, values, of->elements, elements, error);
  }
  if (status == ATTN_STATUS_OK) status = attn_memory_upload(of->memory, 0, elements, bytes, error);
  free(values);
  free(elements);
  return status;
}

static int is_float(attn_dtype dtype) {
  return dtype == ATTN_DTYPE_F16 || dtype == ATTN_DTYPE_BF16 || dtype == ATTN_DTYPE_F32 ||
         dtype == ATTN_DTYPE_F64 || dtype == ATTN_DTYPE_E4M3 || dtype == ATTN_DTYPE_E5M2 ||
         dtype == ATTN_DTYPE_E8M0;
}

/* Allocates the plan's tensor `index` and adds it to the arguments. */
static attn_status add_tensor(application* app, size_t index, attn_error* error) {
  tensor* added = &app->tensors[index];
  attn_tensor given = {.size = sizeof given};
  attn_status status;
  added->info.size = sizeof added->info;
  status = attn_executable_tensor(app->executable, index, &added->info, error);
  if (status != ATTN_STATUS_OK) return status;
  added->elements = storage_elements(&added->info);
  status = attn_memory_allocate(app->runtime, added->elements * attn_dtype_bytes(added->info.dtype),
                                &added->memory, error);
  if (status != ATTN_STATUS_OK) return status;
  app->tensor_count = index + 1;
  status = fill(added, is_float(added->info.dtype) ? 0.5f : 0.0f, error);
  if (status != ATTN_STATUS_OK) return status;
  given.name = added->info.name;
  given.data = attn_memory_data(added->memory);
  given.dtype = added->info.dtype;
  given.rank = added->info.rank;
  given.dims = added->info.dims;
  given.strides = added->info.strides;
  return attn_arguments_tensor(app->arguments, &given, error);
}

static attn_status bind(application* app, attn_error* error) {
  attn_executable_info info = {.size = sizeof info};
  attn_status status = attn_executable_describe(app->executable, &info, error);
  if (status == ATTN_STATUS_OK && info.tensor_count > MOST_TENSORS) {
    return ATTN_STATUS_UNSUPPORTED;
  }
  if (status == ATTN_STATUS_OK) status = attn_arguments_create(&app->arguments, error);
  for (size_t i = 0; status == ATTN_STATUS_OK && i < info.tensor_count; ++i) {
    status = add_tensor(app, i, error);
  }
  if (status != ATTN_STATUS_OK) return status;
  return attn_binding_create(app->executable, app->arguments, NULL, &app->binding, error);
}

static attn_status print_start(const tensor* of, attn_error* error) {
  char bytes[4 * sizeof(double)];
  float values[4];
  const size_t count = of->elements < 4 ? of->elements : 4;
  attn_status status =
      attn_memory_download(of->memory, 0, bytes, count * attn_dtype_bytes(of->info.dtype), error);
  if (status != ATTN_STATUS_OK) return status;
  status = attn_elements_to_f32(of->info.dtype, bytes, count, values, error);
  if (status != ATTN_STATUS_OK) return status;
  printf("%s:", of->info.name);
  for (size_t i = 0; i < count; ++i) printf(" %g", (double)values[i]);
  printf(" ...\n");
  return ATTN_STATUS_OK;
}

static attn_status run(application* app, const char* path, attn_error* error) {
  attn_status status = attn_runtime_open(NULL, &app->runtime, error);
  if (status != ATTN_STATUS_OK) return status;
  status = attn_executable_load_file(app->runtime, path, NULL, &app->executable, error);
  if (status != ATTN_STATUS_OK) return status;
  status = bind(app, error);
  if (status != ATTN_STATUS_OK) return status;
  status = attn_stream_create(app->runtime, &app->stream, error);
  if (status != ATTN_STATUS_OK) return status;
  status = attn_binding_execute(app->binding, attn_stream_handle(app->stream), error);
  if (status != ATTN_STATUS_OK) return status;
  status = attn_stream_synchronize(app->stream, error);
  for (size_t i = 0; status == ATTN_STATUS_OK && i < app->tensor_count; ++i) {
    if (app->tensors[i].info.is_output) status = print_start(&app->tensors[i], error);
  }
  return status;
}

/* Releases everything that was created. */
static void end(application* app) {
  attn_stream_destroy(app->stream);
  attn_binding_destroy(app->binding);
  attn_arguments_destroy(app->arguments);
  for (size_t i = 0; i < app->tensor_count; ++i) attn_memory_free(app->tensors[i].memory);
  attn_executable_release(app->executable);
  attn_runtime_release(app->runtime);
}

int main(int argc, char** argv) {
  static application app; /* all NULL */
  attn_error* error = attn_error_create();
  attn_status status;
  if (argc != 2) {
    fprintf(stderr, "usage: embed_c PLAN\n");
    attn_error_destroy(error);
    return 2;
  }
  status = run(&app, argv[1], error);
  if (status != ATTN_STATUS_OK) {
    fprintf(stderr, "%s: %s\n", attn_status_name(status), attn_error_text(error));
  }
  end(&app);
  attn_error_destroy(error);
  return attn_status_exit_code(status);
}
