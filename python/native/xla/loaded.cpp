#include "loaded.h"

#include <string_view>
#include <utility>

#include "frame.h"

namespace attn::xla {
namespace {

constexpr std::uint64_t kKeptAddresses = 16;
constexpr std::int64_t kAlignment = 256;  // of workspaces

bool is_packed(const attn_tensor_info& info) {
  return std::string_view(info.addressed_by).starts_with("cu_seqlens");
}

// Whether other tensors say where its rows are, so that it may have any number of them.
bool is_located(const attn_tensor_info& info) { return *info.addressed_by != '\0'; }

// 64-bit integers may be given as pairs of 32-bit ones, the low half first: programs of JAX have no
// others unless they ask for them.
bool has_type(const ffi::Buffer& buffer, ffi::Type type) {
  return buffer.type == type || (type == ffi::Type::s64 && buffer.type == ffi::Type::s32);
}

// The first address in a buffer that a workspace may begin at: XLA aligns less.
void* aligned(void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto step = static_cast<std::uintptr_t>(kAlignment);
  return reinterpret_cast<void*>((address + step - 1) / step * step);
}

std::string shape_text(const ffi::Buffer& buffer) {
  std::string text = "[";
  for (std::int64_t i = 0; i < buffer.rank; ++i)
    text += (i > 0 ? ", " : "") + std::to_string(buffer.dims[i]);
  return text + "]";
}

}  // namespace

std::unique_ptr<Loaded> Loaded::make(const attn_plan* plan, std::size_t index,
                                     std::span<const double> params, std::int32_t device,
                                     attn_status& status, attn_error* error) {
  auto made = std::make_unique<Loaded>();
  made->runtime_ = runtime_of(device, status, error);
  if (made->runtime_ == nullptr) return nullptr;
  attn_executable* executable = nullptr;
  status = attn_executable_load_plan(made->runtime_.get(), plan, index, &executable, error);
  if (status != ATTN_STATUS_OK) return nullptr;
  made->executable_.reset(executable);
  made->values_.assign(params.begin(), params.end());
  status = made->describe(error);
  return status == ATTN_STATUS_OK ? std::move(made) : nullptr;
}

Loaded::~Loaded() {
  for (std::atomic<Bound*>& ready : ready_) delete ready.load();
}

attn_status Loaded::describe(attn_error* error) {
  attn_executable_info info = {};
  info.size = sizeof info;
  attn_status status = attn_executable_describe(executable_.get(), &info, error);
  for (std::size_t i = 0; status == ATTN_STATUS_OK && i < info.tensor_count; ++i) {
    Tensor tensor = {};
    tensor.info.size = sizeof tensor.info;
    status = attn_executable_tensor(executable_.get(), i, &tensor.info, error);
    tensor.place = tensor.info.is_output != 0 ? outputs_++ : inputs_++;
    tensor.type = type_of(tensor.info.dtype).value_or(ffi::Type{});
    tensors_.push_back(tensor);
  }
  for (std::size_t i = 0; status == ATTN_STATUS_OK && i < info.param_count; ++i) {
    attn_param_info& param = params_.emplace_back();
    param.size = sizeof param;
    status = attn_executable_param(executable_.get(), i, &param, error);
  }
  workspace_bytes_ = info.workspace_bytes;
  return status;
}

// Checks everything that could make a kernel access wrong memory.
attn_status Loaded::read(const ffi::Call& call, Given& given, std::string& text) const {
  const std::size_t results = outputs_ + (workspace_bytes_ > 0 ? 1 : 0);
  if (static_cast<std::size_t>(call.arguments.count) != inputs_ ||
      static_cast<std::size_t>(call.results.count) != results) {
    text = "the plan has " + std::to_string(inputs_) + " inputs and " + std::to_string(results) +
           " results with its workspace, the call " + std::to_string(call.arguments.count) +
           " and " + std::to_string(call.results.count);
    return ATTN_STATUS_BINDING;
  }
  if (values_.size() != params_.size()) {
    text = "the plan has " + std::to_string(params_.size()) + " params, the call " +
           std::to_string(values_.size());
    return ATTN_STATUS_BINDING;
  }
  given.addresses.reserve(tensors_.size());
  for (const Tensor& tensor : tensors_) {
    const attn_tensor_info& info = tensor.info;
    const ffi::Buffer* const buffer =
        buffer_of(info.is_output != 0 ? call.results : call.arguments, tensor.place);
    if (buffer == nullptr || !has_type(*buffer, tensor.type) ||
        (!is_located(info) && count_of(*buffer) * element_bytes(buffer->type) < info.bytes)) {
      text = std::string(info.name) + " must have " + std::to_string(info.bytes) + " bytes of " +
             attn_dtype_name(info.dtype);
      if (buffer != nullptr) text += ", and the call gives the shape " + shape_text(*buffer);
      return ATTN_STATUS_BINDING;
    }
    given.addresses.push_back(buffer->data);
  }
  if (workspace_bytes_ == 0) return ATTN_STATUS_OK;
  const ffi::Buffer* const workspace = buffer_of(call.results, outputs_);
  const std::int64_t wanted = workspace_bytes_ + kAlignment;
  if (workspace == nullptr || count_of(*workspace) * element_bytes(workspace->type) < wanted) {
    text = "the workspace must have " + std::to_string(wanted) + " bytes";
    return ATTN_STATUS_BINDING;
  }
  given.workspace = aligned(workspace->data);
  return ATTN_STATUS_OK;
}

// A pool of pages, or a page table, has the dims of the buffer; all others are as the plan says.
attn_status Loaded::set_pool(attn_arguments* arguments, const Tensor& tensor,
                             const ffi::Buffer& buffer, attn_error* error) const {
  const auto rank = static_cast<std::size_t>(buffer.rank);
  std::vector<std::int64_t> strides(rank, 1);
  for (std::size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * buffer.dims[i];
  attn_tensor given = {};
  given.size = sizeof given;
  given.name = tensor.info.name;
  given.data = buffer.data;
  given.dtype = tensor.info.dtype;
  given.rank = static_cast<std::int32_t>(rank);
  given.dims = buffer.dims;
  given.strides = strides.data();
  return attn_arguments_tensor(arguments, &given, error);
}

attn_status Loaded::bind(const ffi::Call& call, const Given& given, void* stream, Bound& bound,
                         attn_error* error) const {
  attn_arguments* made = nullptr;
  attn_status status = attn_arguments_create(&made, error);
  const Arguments arguments(made);
  for (std::size_t i = 0; status == ATTN_STATUS_OK && i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    const bool is_pool =
        !is_packed(tensor.info) && (is_located(tensor.info) || tensor.info.bound_strides != 0);
    if (is_pool) {
      const ffi::Buffers& all = tensor.info.is_output != 0 ? call.results : call.arguments;
      status = set_pool(made, tensor, *buffer_of(all, tensor.place), error);
    } else {
      status = attn_arguments_address(made, tensor.info.name, given.addresses[i], error);
    }
  }
  for (std::size_t i = 0; status == ATTN_STATUS_OK && i < params_.size(); ++i)
    status = attn_arguments_param(made, params_[i].name, params_[i].dtype, values_[i], error);
  if (status != ATTN_STATUS_OK) return status;
  attn_bind_options options = {};
  options.size = sizeof options;
  options.workspace = given.workspace == nullptr ? ATTN_WORKSPACE_OWNED : ATTN_WORKSPACE_CALLER;
  options.workspace_memory = given.workspace;
  options.kept_addresses = kKeptAddresses;
  options.stream = stream;
  attn_binding* binding = nullptr;
  status = attn_binding_create(executable_.get(), made, &options, &binding, error);
  bound = {Binding(binding), given.addresses, given.workspace};
  return status;
}

attn_status Loaded::move(Bound& bound, Given& given, attn_error* error) {
  attn_binding* const binding = bound.binding.get();
  attn_status status = ATTN_STATUS_OK;
  if (bound.addresses != given.addresses) {
    status = attn_binding_set_addresses(binding, given.addresses.data(), given.addresses.size(),
                                        ATTN_CHECK_NOTHING, error);
    if (status == ATTN_STATUS_OK) bound.addresses.swap(given.addresses);
  }
  if (status == ATTN_STATUS_OK && bound.workspace != given.workspace) {
    status = attn_binding_set_workspace(binding, given.workspace, error);
    if (status == ATTN_STATUS_OK) bound.workspace = given.workspace;
  }
  return status;
}

std::unique_ptr<Loaded::Bound> Loaded::take() {
  for (std::atomic<Bound*>& ready : ready_) {
    if (ready.load(std::memory_order_relaxed) == nullptr) continue;
    if (Bound* const found = ready.exchange(nullptr, std::memory_order_acquire))
      return std::unique_ptr<Bound>(found);
  }
  return nullptr;
}

void Loaded::give_back(std::unique_ptr<Bound> bound) {
  for (std::atomic<Bound*>& ready : ready_) {
    Bound* none = nullptr;
    if (ready.compare_exchange_strong(none, bound.get(), std::memory_order_release,
                                      std::memory_order_relaxed)) {
      static_cast<void>(bound.release());
      return;
    }
  }
  const std::lock_guard lock(keeping_);
  others_.push_back(std::move(bound));
}

attn_status Loaded::prepare(const ffi::Call& call, void* stream, attn_error* error,
                            std::string& text) {
  std::unique_ptr<Bound> bound = take();
  if (bound == nullptr) {
    bound = std::make_unique<Bound>();
    Given given;
    attn_status status = read(call, given, text);
    if (status == ATTN_STATUS_OK) status = bind(call, given, stream, *bound, error);
    if (status != ATTN_STATUS_OK) return status;
  }
  give_back(std::move(bound));
  return ATTN_STATUS_OK;
}

attn_status Loaded::run(const ffi::Call& call, void* stream, attn_error* error, std::string& text) {
  Given given;
  attn_status status = read(call, given, text);
  if (status != ATTN_STATUS_OK) return status;
  std::unique_ptr<Bound> bound = take();
  if (bound == nullptr) {
    bound = std::make_unique<Bound>();
    status = bind(call, given, stream, *bound, error);
    if (status != ATTN_STATUS_OK) return status;
  } else {
    status = move(*bound, given, error);
  }
  if (status == ATTN_STATUS_OK) status = attn_binding_execute(bound->binding.get(), stream, error);
  give_back(std::move(bound));
  return status;
}

}  // namespace attn::xla
