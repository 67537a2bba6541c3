#include "call.h"

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "enqueue.h"
#include "exchange.h"
#include "python_abi.h"

namespace attn::python {

constexpr std::int32_t kCuda = 2;
constexpr std::uint64_t kKeptAddresses = 64;
constexpr std::size_t kMostBound = 256;  // bindings, of streams and strides

struct Release {
  void operator()(DlManagedTensor* tensor) const {
    if (tensor != nullptr && tensor->deleter != nullptr) tensor->deleter(tensor);
  }
};
using Memory = std::unique_ptr<DlManagedTensor, Release>;

struct DestroyBinding {
  void operator()(attn_binding* binding) const { attn_binding_destroy(binding); }
};

struct DestroyArguments {
  void operator()(attn_arguments* arguments) const { attn_arguments_destroy(arguments); }
};

// A binding for one stream, and the workspace it keeps.
struct Bound {
  std::unique_ptr<attn_binding, DestroyBinding> binding;
  Memory workspace;
  std::vector<double> params;
};

// A tensor of the plan, as DLPack describes it.
struct Expected {
  std::size_t place;  // among the executable's tensors
  attn_dtype type;
  DlDtype dtype;
  std::vector<std::int64_t> dims, strides;
  std::vector<int> order;             // dims from the slowest to the fastest in memory
  std::vector<std::int64_t> ordered;  // sizes in this order
  std::int64_t alignment;
  bool is_pool;    // of pages that a table locates: there may be fewer of them
  bool is_packed;  // rows that cumulative lengths locate
  bool is_bound;   // strides, and the number of pages, are those of the tensor that is given
};

// Codes of DLPack: signed integers 0, unsigned 1, floats 2, bfloat16 4, bool 6, e4m3 (fn) 10, e5m2
// 12, e8m0 14.
static DlDtype dl_dtype(attn_dtype dtype) {
  const auto bits = static_cast<std::uint8_t>(attn_dtype_bytes(dtype) * 8);
  switch (dtype) {
    case ATTN_DTYPE_BF16: return {4, bits, 1};
    case ATTN_DTYPE_F16:
    case ATTN_DTYPE_F32:
    case ATTN_DTYPE_F64: return {2, bits, 1};
    case ATTN_DTYPE_U8: return {1, bits, 1};
    case ATTN_DTYPE_BOOL: return {6, bits, 1};
    case ATTN_DTYPE_E4M3: return {10, bits, 1};
    case ATTN_DTYPE_E5M2: return {12, bits, 1};
    case ATTN_DTYPE_E8M0: return {14, bits, 1};
    default: return {0, bits, 1};
  }
}

static Expected expected(const attn_tensor_info& info, std::size_t place) {
  const auto rank = static_cast<std::size_t>(info.rank);
  Expected made{place,
                info.dtype,
                dl_dtype(info.dtype),
                {info.dims, info.dims + rank},
                {info.strides, info.strides + rank},
                {},
                {},
                info.alignment,
                std::string_view(info.addressed_by).starts_with("page_table"),
                std::string_view(info.addressed_by).starts_with("cu_seqlens"),
                info.bound_strides != 0};
  for (int dim = 0; dim < info.rank; ++dim) made.order.push_back(dim);
  std::stable_sort(made.order.begin(), made.order.end(), [&](int x, int y) {
    return made.strides[static_cast<std::size_t>(x)] > made.strides[static_cast<std::size_t>(y)];
  });
  for (const int dim : made.order) made.ordered.push_back(made.dims[static_cast<std::size_t>(dim)]);
  return made;
}

static bool is_dense(const Expected& tensor) {
  std::int64_t step = 1;
  for (auto dim = tensor.order.rbegin(); dim != tensor.order.rend(); ++dim) {
    const auto place = static_cast<std::size_t>(*dim);
    if (tensor.dims[place] > 1 && tensor.strides[place] != step) return false;
    step *= tensor.dims[place];
  }
  return true;
}

static bool same_layout(const Expected& plan, const DlTensor& tensor) {
  if (tensor.rank != static_cast<std::int32_t>(plan.dims.size())) return false;
  std::int64_t dense = 1;
  for (std::size_t dim = plan.dims.size(); dim-- > 0;) {
    const bool other = plan.is_pool && dim == 0 && (plan.is_bound || tensor.dims[0] < plan.dims[0]);
    if (tensor.dims[dim] != plan.dims[dim] && !other) return false;
    const std::int64_t stride = tensor.strides != nullptr ? tensor.strides[dim] : dense;
    if (plan.dims[dim] > 1 && stride != plan.strides[dim] && !plan.is_bound) return false;
    dense *= plan.dims[dim];
  }
  return true;
}

// Dims and strides of the tensors with bound strides, one after the other.
using Views = std::vector<std::int64_t>;

static void add_view(const DlTensor& tensor, Views& views) {
  const auto rank = static_cast<std::size_t>(tensor.rank);
  views.insert(views.end(), tensor.dims, tensor.dims + rank);
  Views dense(rank, 1);
  for (std::size_t dim = rank; dim-- > 1;) dense[dim - 1] = dense[dim] * tensor.dims[dim];
  const std::int64_t* const strides = tensor.strides != nullptr ? tensor.strides : dense.data();
  views.insert(views.end(), strides, strides + rank);
}

static void* address_of(const DlTensor& tensor) {
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}

static void ignore_error(void*, const char*, const char*) {}

}  // namespace attn::python

using namespace attn::python;

struct attn_call {
  attn_executable* executable = nullptr;
  const DlExchange* exchange = nullptr;
  std::int32_t device = 0;
  std::uint64_t workspace_bytes = 0, most_kept = 0;
  std::vector<Expected> inputs, outputs;
  std::vector<const char*> names, params;
  std::vector<attn_dtype> dtypes;
  std::map<std::pair<void*, Views>, Bound> bound;  // by stream
  std::vector<double> values;
  std::vector<void*> addresses;  // of the run under way
  Views views;
  std::vector<Memory> made;
  Reference types, failed;
  attn_error* error = attn_error_create();

  attn_call() = default;
  attn_call(const attn_call&) = delete;
  attn_call& operator=(const attn_call&) = delete;
  ~attn_call() {
    attn_error_destroy(error);
    bound.clear();
    attn_executable_release(executable);
  }

  attn_status prepare(attn_error* error);
  // A new reference to a tuple of the outputs, or null and a status.
  void* run(void* tuple, void* numbers, attn_status& status);

 private:
  bool is_of_types(void* object) const;
  bool read(void* tuple);
  bool read_params(void* numbers);
  bool allocate_outputs();
  Memory allocate(Expected& tensor) const;
  Memory allocate_bytes(std::uint64_t bytes) const;
  attn_status bind_to(void* stream, const double* values, const Memory& workspace,
                      attn_binding** binding, attn_error* error);
  attn_status bind(void* stream, const double* values, void* workspace, Bound& into,
                   attn_error* error) const;
  attn_status set_params(Bound& to, const double* values, attn_error* error) const;
  void* give();
};

attn_status attn_call::prepare(attn_error* error) {
  attn_executable_info info{};
  info.size = sizeof info;
  attn_status status = attn_executable_describe(executable, &info, error);
  if (status != ATTN_STATUS_OK) return status;
  workspace_bytes = static_cast<std::uint64_t>(info.workspace_bytes);
  for (std::size_t i = 0; i < info.tensor_count; ++i) {
    attn_tensor_info tensor{};
    tensor.size = sizeof tensor;
    status = attn_executable_tensor(executable, i, &tensor, error);
    if (status != ATTN_STATUS_OK) return status;
    (tensor.is_output != 0 ? outputs : inputs).push_back(expected(tensor, i));
    names.push_back(tensor.name);
  }
  for (std::size_t i = 0; i < info.param_count; ++i) {
    attn_param_info param{};
    param.size = sizeof param;
    status = attn_executable_param(executable, i, &param, error);
    if (status != ATTN_STATUS_OK) return status;
    params.push_back(param.name);
    dtypes.push_back(param.dtype);
  }
  values.resize(info.param_count);
  addresses.resize(info.tensor_count);
  made.resize(outputs.size());
  return ATTN_STATUS_OK;
}

bool attn_call::is_of_types(void* object) const {
  const std::ptrdiff_t count = PyTuple_Size(types.get());
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    if (has_type(object, PyTuple_GetItem(types.get(), i))) return true;
  }
  return false;
}

bool attn_call::read(void* tuple) {
  if (PyTuple_Size(tuple) != static_cast<std::ptrdiff_t>(inputs.size())) return false;
  views.clear();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Expected& plan = inputs[i];
    DlTensor tensor{};
    void* const object = PyTuple_GetItem(tuple, static_cast<std::ptrdiff_t>(i));
    if (!is_of_types(object) || !read_tensor(*exchange, object, tensor)) return false;
    const bool fits = tensor.device.type == kCuda && tensor.device.id == device &&
                      tensor.dtype.code == plan.dtype.code &&
                      tensor.dtype.bits == plan.dtype.bits && !plan.is_packed &&
                      same_layout(plan, tensor);
    void* const address = address_of(tensor);
    if (!fits ||
        reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(plan.alignment) !=
            0)
      return false;
    addresses[plan.place] = address;
    if (plan.is_bound) add_view(tensor, views);
  }
  return true;
}

// The framework allocates row-major tensors: the dims are given in the order of memory, and
// permuted in the result, whose arrays of dims and strides are its own.
Memory attn_call::allocate(Expected& tensor) const {
  DlTensor prototype{nullptr,
                     {kCuda, device},
                     static_cast<std::int32_t>(tensor.ordered.size()),
                     tensor.dtype,
                     tensor.ordered.data(),
                     nullptr,
                     0};
  DlManagedTensor* memory = nullptr;
  if (exchange->allocate(&prototype, &memory, nullptr, ignore_error) != 0) return nullptr;
  for (std::size_t dim = 0; dim < tensor.dims.size(); ++dim) {
    memory->tensor.dims[dim] = tensor.dims[dim];
    if (memory->tensor.strides != nullptr) memory->tensor.strides[dim] = tensor.strides[dim];
  }
  return Memory(memory);
}

Memory attn_call::allocate_bytes(std::uint64_t bytes) const {
  auto size = static_cast<std::int64_t>(bytes);
  DlTensor prototype{nullptr, {kCuda, device}, 1, {1, 8, 1}, &size, nullptr, 0};
  DlManagedTensor* memory = nullptr;
  if (exchange->allocate(&prototype, &memory, nullptr, ignore_error) != 0) return nullptr;
  return Memory(memory);
}

bool attn_call::allocate_outputs() {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    made[i] = allocate(outputs[i]);
    if (made[i] == nullptr) return false;
    addresses[outputs[i].place] = address_of(made[i]->tensor);
  }
  return true;
}

attn_status attn_call::bind(void* stream, const double* values, void* workspace, Bound& into,
                            attn_error* error) const {
  attn_arguments* created = nullptr;
  attn_status status = attn_arguments_create(&created, error);
  if (status != ATTN_STATUS_OK) return status;
  const std::unique_ptr<attn_arguments, DestroyArguments> arguments(created);
  for (std::size_t i = 0; i < names.size() && status == ATTN_STATUS_OK; ++i)
    status = attn_arguments_address(created, names[i], addresses[i], error);
  const std::int64_t* view = views.data();
  for (const Expected& plan : inputs) {
    if (!plan.is_bound || status != ATTN_STATUS_OK) continue;
    const auto rank = static_cast<std::int32_t>(plan.dims.size());
    attn_tensor tensor{};
    tensor.size = sizeof tensor;
    tensor.name = names[plan.place];
    tensor.data = addresses[plan.place];
    tensor.dtype = plan.type;
    tensor.rank = rank;
    tensor.dims = view;
    tensor.strides = view + rank;
    status = attn_arguments_tensor(created, &tensor, error);
    view += 2 * rank;
  }
  for (std::size_t i = 0; i < params.size() && status == ATTN_STATUS_OK; ++i)
    status = attn_arguments_param(created, params[i], dtypes[i], values[i], error);
  if (status != ATTN_STATUS_OK) return status;
  attn_bind_options options{};
  options.size = sizeof options;
  options.workspace = workspace != nullptr ? ATTN_WORKSPACE_CALLER : ATTN_WORKSPACE_OWNED;
  options.workspace_memory = workspace;
  options.kept_addresses = kKeptAddresses;
  options.stream = stream;
  attn_binding* binding = nullptr;
  status = attn_binding_create(executable, created, &options, &binding, error);
  if (status != ATTN_STATUS_OK) return status;
  into.binding.reset(binding);
  into.params.assign(values, values + params.size());
  return ATTN_STATUS_OK;
}

attn_status attn_call::set_params(Bound& to, const double* values, attn_error* error) const {
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (to.params[i] == values[i]) continue;
    const attn_status status =
        attn_binding_set_param(to.binding.get(), params[i], values[i], error);
    if (status != ATTN_STATUS_OK) return status;
    to.params[i] = values[i];
  }
  return ATTN_STATUS_OK;
}

// The binding of a stream, with the addresses, params and workspace of this run.
attn_status attn_call::bind_to(void* stream, const double* values, const Memory& workspace,
                               attn_binding** binding, attn_error* error) {
  const auto found = bound.find({stream, views});
  if (found == bound.end()) {
    if (bound.size() >= kMostBound) bound.clear();
    Bound created;
    if (workspace_bytes > 0 && workspace == nullptr) {
      created.workspace = allocate_bytes(workspace_bytes);
      if (created.workspace == nullptr) return ATTN_CALL_UNFIT;
    }
    const Memory& memory = workspace != nullptr ? workspace : created.workspace;
    void* const address = memory != nullptr ? address_of(memory->tensor) : nullptr;
    const attn_status status = bind(stream, values, address, created, error);
    if (status != ATTN_STATUS_OK) return status;
    *binding =
        bound.emplace(std::pair(stream, views), std::move(created)).first->second.binding.get();
    return ATTN_STATUS_OK;
  }
  *binding = found->second.binding.get();
  attn_status status = attn_binding_set_addresses(*binding, addresses.data(), addresses.size(),
                                                  ATTN_CHECK_NOTHING, error);
  if (status == ATTN_STATUS_OK && workspace != nullptr)
    status = attn_binding_set_workspace(*binding, address_of(workspace->tensor), error);
  return status == ATTN_STATUS_OK ? set_params(found->second, values, error) : status;
}

bool attn_call::read_params(void* numbers) {
  if (PyTuple_Size(numbers) != static_cast<std::ptrdiff_t>(params.size())) return false;
  for (std::size_t i = 0; i < params.size(); ++i)
    values[i] = PyFloat_AsDouble(PyTuple_GetItem(numbers, static_cast<std::ptrdiff_t>(i)));
  return true;
}

void* attn_call::give() {
  void* const tuple = PyTuple_New(static_cast<std::ptrdiff_t>(made.size()));
  for (std::size_t i = 0; tuple != nullptr && i < made.size(); ++i) {
    void* object = nullptr;
    if (exchange->object_from_managed(made[i].release(), &object) != 0) {
      Py_DecRef(tuple);
      return nullptr;
    }
    PyTuple_SetItem(tuple, static_cast<std::ptrdiff_t>(i), object);
  }
  return tuple;
}

void* attn_call::run(void* tuple, void* numbers, attn_status& status) {
  status = ATTN_CALL_UNFIT;
  void* stream = nullptr;
  if (!read(tuple) || !read_params(numbers) ||
      exchange->current_stream(kCuda, device, &stream) != 0 || is_capturing(stream) ||
      !allocate_outputs())
    return nullptr;
  Memory workspace;
  if (workspace_bytes > most_kept) {
    workspace = allocate_bytes(workspace_bytes);
    if (workspace == nullptr) return nullptr;
  }
  attn_binding* binding = nullptr;
  status = bind_to(stream, values.data(), workspace, &binding, error);
  if (status == ATTN_STATUS_OK) status = attn_binding_execute(binding, stream, error);
  if (status != ATTN_STATUS_OK) return nullptr;
  void* const results = give();
  if (results == nullptr) status = ATTN_STATUS_OUT_OF_MEMORY;
  return results;
}

attn_status attn_call_create(attn_executable* executable, const void* exchange, int32_t device,
                             uint64_t most_kept_workspace, attn_call** call, attn_error* error) {
  const auto* functions = static_cast<const DlExchange*>(exchange);
  if (executable == nullptr || call == nullptr || functions == nullptr ||
      functions->header.version.major != 1 || functions->tensor_from_object == nullptr)
    return ATTN_STATUS_INVALID_ARGUMENT;
  try {
    auto made = std::make_unique<attn_call>();
    attn_executable_retain(executable);
    made->executable = executable;
    made->exchange = functions;
    made->device = device;
    made->most_kept = most_kept_workspace;
    const attn_status status = made->prepare(error);
    if (status != ATTN_STATUS_OK) return status;
    const bool dense = std::all_of(made->outputs.begin(), made->outputs.end(), is_dense);
    if (!dense) return ATTN_STATUS_INVALID_ARGUMENT;
    *call = made.release();
    return ATTN_STATUS_OK;
  } catch (const std::bad_alloc&) {
    return ATTN_STATUS_OUT_OF_MEMORY;
  }
}

void attn_call_destroy(attn_call* call) { delete call; }

attn_error* attn_call_error(const attn_call* call) { return call->error; }

namespace attn::python {
namespace {

constexpr const char* kCallCapsule = "attn_call";

attn_call& call_of(void* capsule) {
  return *static_cast<attn_call*>(PyCapsule_GetPointer(capsule, kCallCapsule));
}

void destroy_call(void* capsule) { delete &call_of(capsule); }

void* run_call(void* capsule, void* const* arguments, std::ptrdiff_t count) {
  constexpr std::ptrdiff_t kArguments = 2;
  if (count != kArguments) {
    PyErr_BadArgument();
    return nullptr;
  }
  attn_call& call = call_of(capsule);
  attn_status status = ATTN_STATUS_OUT_OF_MEMORY;
  try {
    void* const results = call.run(arguments[0], arguments[1], status);
    if (results != nullptr) return results;
  } catch (const std::bad_alloc&) {
    status = ATTN_STATUS_OUT_OF_MEMORY;
  }
  PyErr_Clear();
  if (status == ATTN_CALL_UNFIT) return none();
  const Reference number(PyLong_FromLong(status));
  return PyObject_CallFunctionObjArgs(call.failed.get(), number.get(), nullptr);
}

Method call_method{"run", run_call, kFastCall, nullptr};

}  // namespace
}  // namespace attn::python

void* attn_call_function(attn_call* call, void* types, void* failed) {
  call->types = new_reference(types);
  call->failed = new_reference(failed);
  void* const capsule = PyCapsule_New(call, kCallCapsule, destroy_call);
  if (capsule == nullptr) return nullptr;
  const Reference owned(capsule);
  return PyCFunction_NewEx(&call_method, capsule, nullptr);
}
