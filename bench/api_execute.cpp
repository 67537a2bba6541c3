#include "bench/api_execute.h"

#include "runtime/api/attn.h"

namespace attn::bench {
namespace {

attn_dtype number_of(DType type) {
  for (attn_dtype number = ATTN_DTYPE_F16; number <= ATTN_DTYPE_E8M0; ++number) {
    if (to_string(type) == attn_dtype_name(number)) return number;
  }
  return 0;
}

}  // namespace

struct ApiExecute::State {
  ~State() {
    attn_binding_destroy(binding);
    attn_arguments_destroy(arguments);
    attn_executable_release(executable);
    attn_runtime_release(runtime);
    attn_error_destroy(error);
  }

  Status done(attn_status status) const {
    if (status == ATTN_STATUS_OK) return {};
    return Status(ErrorCode::internal, attn_error_text(error));
  }
  Status add(const execute::Arguments& from) const;

  attn_error* error = attn_error_create();
  attn_runtime* runtime = nullptr;
  attn_executable* executable = nullptr;
  attn_arguments* arguments = nullptr;
  attn_binding* binding = nullptr;
};

Status ApiExecute::State::add(const execute::Arguments& from) const {
  for (const execute::Arguments::Tensor& each : from.tensors()) {
    attn_tensor tensor = {};
    tensor.size = sizeof tensor;
    tensor.name = each.name.c_str();
    tensor.data = each.view.data;
    tensor.dtype = number_of(each.view.dtype);
    tensor.rank = static_cast<std::int32_t>(each.view.dims.size());
    tensor.dims = each.view.dims.data();
    tensor.strides = each.view.strides.data();
    ATTN_RETURN_IF_ERROR(done(attn_arguments_tensor(arguments, &tensor, error)));
  }
  for (const execute::Arguments::Scalar& each : from.scalars()) {
    ATTN_RETURN_IF_ERROR(done(attn_arguments_param(arguments, each.name.c_str(),
                                                   number_of(each.dtype), each.value, error)));
  }
  return {};
}

ApiExecute::ApiExecute(std::unique_ptr<State> state) : state_(std::move(state)) {}
ApiExecute::ApiExecute(ApiExecute&&) noexcept = default;
ApiExecute::~ApiExecute() = default;

Result<ApiExecute> ApiExecute::create(const std::string& plan_path, int device,
                                      const std::string& cudnn_folder,
                                      const execute::Arguments& arguments) {
  auto state = std::make_unique<State>();
  attn_runtime_options options = {};
  options.size = sizeof options;
  options.device = device;
  options.cudnn_folder = cudnn_folder.empty() ? nullptr : cudnn_folder.c_str();
  attn_error* error = state->error;
  ATTN_RETURN_IF_ERROR(state->done(attn_runtime_open(&options, &state->runtime, error)));
  ATTN_RETURN_IF_ERROR(state->done(attn_executable_load_file(state->runtime, plan_path.c_str(),
                                                             nullptr, &state->executable, error)));
  ATTN_RETURN_IF_ERROR(state->done(attn_arguments_create(&state->arguments, error)));
  ATTN_RETURN_IF_ERROR(state->add(arguments));
  ATTN_RETURN_IF_ERROR(state->done(
      attn_binding_create(state->executable, state->arguments, nullptr, &state->binding, error)));
  return ApiExecute(std::move(state));
}

Status ApiExecute::execute(void* stream) {
  return state_->done(attn_binding_execute(state_->binding, stream, state_->error));
}

}  // namespace attn::bench
