#include "bound_call.h"

#include <dlfcn.h>

#include <array>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "call.h"
#include "enqueue.h"
#include "python_abi.h"

namespace attn::python {

// Facts that a tensor must have, and the type of its example.
struct Known {
  std::int32_t place, counts;
  std::uintptr_t alignment;
  std::vector<std::int64_t> dims, strides;
  DlDtype dtype{};
  void* fixed;
  std::int64_t least_columns = 0, most_columns = 0;
  void* absent = nullptr;  // the object that stands for no tensor
  void* type = nullptr;    // that of the example, a reference
};

// Numbers that tensors of a run agree on, by what they count; -1: none has said it yet.
struct Counts {
  std::array<std::int64_t, ATTN_COUNTS_SEQUENCES + 1> of{-1, -1, -1};

  bool agree(std::int32_t counts, std::int64_t number) {
    if (counts == ATTN_COUNTS_SEQUENCES_AND_1) return agree(ATTN_COUNTS_SEQUENCES, number - 1);
    std::int64_t& known = of[static_cast<std::size_t>(counts)];
    if (known < 0) known = number;
    return known == number;
  }
};

static bool same_type(const DlDtype& a, const DlDtype& b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// The stride of the rows of a table, or 0 if it is not one that the call takes.
static std::int64_t step_of_table(const Known& known, const DlTensor& tensor, Counts& counts) {
  if (tensor.rank != 2 || !counts.agree(known.counts, tensor.dims[0])) return 0;
  const std::int64_t columns = tensor.dims[1];
  if (columns < known.least_columns || columns > known.most_columns) return 0;
  if (tensor.strides == nullptr) return columns;
  if (columns > 1 && tensor.strides[1] != 1) return 0;
  const std::int64_t step = tensor.dims[0] > 1 ? tensor.strides[0] : columns;
  return step >= columns ? step : 0;
}

static bool same_view(const Known& known, const DlTensor& tensor, Counts& counts) {
  if (tensor.rank != static_cast<std::int32_t>(known.dims.size())) return false;
  std::int64_t dense = 1;
  for (std::size_t dim = known.dims.size(); dim-- > 0;) {
    const bool counted = dim == 0 && known.counts != ATTN_COUNTS_NOTHING;
    const std::int64_t size = tensor.dims[dim];
    if (counted ? !counts.agree(known.counts, size) : size != known.dims[dim]) return false;
    const std::int64_t stride = tensor.strides != nullptr ? tensor.strides[dim] : dense;
    if (size > 1 && stride != known.strides[dim]) return false;
    dense *= size;
  }
  return true;
}

// Exchange functions take objects of the framework's types alone.
bool has_type(void* object, void* wanted) {
  void* const type = PyObject_Type(object);
  Py_DecRef(type);
  return type == wanted;
}

bool read_tensor(const DlExchange& exchange, void* object, DlTensor& tensor) {
  if (exchange.tensor_from_object(object, &tensor) == 0) return true;
  PyErr_Clear();
  return false;
}

// The driver is that of libattn, which has loaded it.
bool is_capturing(void* stream) {
  using Ask = int (*)(void* stream, int* status);
  static const Ask ask = [] {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return driver == nullptr ? nullptr
                             : reinterpret_cast<Ask>(dlsym(driver, "cuStreamIsCapturing"));
  }();
  int status = 0;
  if (stream == nullptr) return false;  // the default stream cannot be captured
  return ask == nullptr || ask(stream, &status) != 0 || status != 0;
}

}  // namespace attn::python

using namespace attn::python;

struct attn_bound_call {
  attn_binding* binding = nullptr;
  const DlExchange* exchange = nullptr;
  DlDevice device{};
  std::int64_t least = 0, most = 0;
  std::vector<Known> tensors;
  std::vector<void*> addresses;
  std::vector<const std::int64_t*> strides;  // null but for a table whose step is another one
  std::array<std::int64_t, 2> table = {0, 1};
  bool captured = false;

  ~attn_bound_call() {
    for (const Known& known : tensors)
      if (known.type != nullptr) Py_DecRef(known.type);
  }

  bool prepare(void* examples);
  std::int32_t run(void* const* objects, attn_schedule* schedule, void* stream, attn_error* error);

 private:
  bool read(const Known& known, void* object, Counts& counts);
  bool read_view(const Known& known, const DlTensor& tensor, Counts& counts);
  attn_status move(attn_error* error);

  std::int64_t step_ = 0;  // of the table in the run under way
};

bool attn_bound_call::prepare(void* examples) {
  if (PyTuple_Size(examples) != static_cast<std::ptrdiff_t>(tensors.size())) return false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Known& known = tensors[i];
    void* const object = PyTuple_GetItem(examples, static_cast<std::ptrdiff_t>(i));
    if (known.place < 0 || known.fixed != nullptr) {
      known.absent = object;
      if (known.place >= 0) addresses[static_cast<std::size_t>(known.place)] = known.fixed;
      continue;
    }
    DlTensor tensor{};
    if (!read_tensor(*exchange, object, tensor)) return false;
    known.dtype = tensor.dtype;
    known.type = PyObject_Type(object);
    if (known.most_columns > 0) table[0] = known.strides[0];
  }
  step_ = table[0];
  return true;
}

bool attn_bound_call::read_view(const Known& known, const DlTensor& tensor, Counts& counts) {
  if (known.most_columns == 0) return same_view(known, tensor, counts);
  step_ = step_of_table(known, tensor, counts);
  return step_ > 0;
}

bool attn_bound_call::read(const Known& known, void* object, Counts& counts) {
  if (known.absent != nullptr) return object == known.absent;
  if (object == nullptr || !has_type(object, known.type)) return false;
  DlTensor tensor{};
  if (!read_tensor(*exchange, object, tensor)) return false;
  void* const address = address_in(tensor);
  const bool fits = address != nullptr && tensor.device.type == device.type &&
                    tensor.device.id == device.id && same_type(tensor.dtype, known.dtype) &&
                    read_view(known, tensor, counts) &&
                    reinterpret_cast<std::uintptr_t>(address) % known.alignment == 0;
  if (fits) addresses[static_cast<std::size_t>(known.place)] = address;
  return fits;
}

// Moves the binding to the tensors of a run.
attn_status attn_bound_call::move(attn_error* error) {
  if (step_ == table[0]) {
    return attn_binding_set_addresses(binding, addresses.data(), addresses.size(),
                                      ATTN_CHECK_NOTHING, error);
  }
  const std::int64_t before = std::exchange(table[0], step_);
  const attn_status status = attn_binding_set_views(binding, addresses.data(), strides.data(),
                                                    addresses.size(), ATTN_CHECK_NOTHING, error);
  if (status != ATTN_STATUS_OK) table[0] = before;
  return status;
}

std::int32_t attn_bound_call::run(void* const* objects, attn_schedule* schedule, void* stream,
                                  attn_error* error) {
  Counts counts;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!read(tensors[i], objects[i], counts)) return ATTN_CALL_UNFIT;
  }
  const std::int64_t sequences = counts.of[ATTN_COUNTS_SEQUENCES];
  if (sequences < least || sequences > most) return ATTN_CALL_UNFIT;
  attn_status status = move(error);
  if (status == ATTN_STATUS_OK && schedule != nullptr)
    status = attn_schedule_build(schedule, binding, nullptr, sequences, stream, error);
  if (status == ATTN_STATUS_OK) status = attn_binding_execute(binding, stream, error);
  if (status == ATTN_STATUS_OK && !captured) captured = is_capturing(stream);
  return status;
}

std::int32_t attn::python::run(attn_bound_call& call, void* const* objects, attn_schedule* schedule,
                               void* stream, attn_error* error) {
  return call.run(objects, schedule, stream, error);
}

static Known known_of(const attn_bound_tensor& tensor) {
  const auto rank = static_cast<std::size_t>(tensor.rank);
  return {tensor.place,
          tensor.counts,
          static_cast<std::uintptr_t>(tensor.alignment > 0 ? tensor.alignment : 1),
          {tensor.dims, tensor.dims + rank},
          {tensor.strides, tensor.strides + rank},
          {},
          tensor.fixed,
          tensor.least_columns,
          tensor.most_columns};
}

attn_status attn_bound_call_create(attn_binding* binding, const void* exchange,
                                   const attn_bound_options* options, void* examples,
                                   attn_bound_call** call, attn_error*) {
  const auto* functions = static_cast<const DlExchange*>(exchange);
  if (binding == nullptr || call == nullptr || options == nullptr || functions == nullptr ||
      functions->header.version.major != 1 || functions->tensor_from_object == nullptr ||
      options->tensor_count > ATTN_MOST_BOUND_TENSORS)
    return ATTN_STATUS_INVALID_ARGUMENT;
  try {
    auto made = std::make_unique<attn_bound_call>();
    made->binding = binding;
    made->exchange = functions;
    made->device = {options->device_type, options->device};
    made->least = options->least_sequences;
    made->most = options->most_sequences;
    made->addresses.assign(options->addresses, options->addresses + options->address_count);
    made->strides.assign(options->address_count, nullptr);
    for (std::size_t i = 0; i < options->tensor_count; ++i) {
      const Known& known = made->tensors.emplace_back(known_of(options->tensors[i]));
      if (known.most_columns > 0)
        made->strides[static_cast<std::size_t>(known.place)] = made->table.data();
    }
    if (!made->prepare(examples)) return ATTN_STATUS_INVALID_ARGUMENT;
    *call = made.release();
    return ATTN_STATUS_OK;
  } catch (const std::bad_alloc&) {
    return ATTN_STATUS_OUT_OF_MEMORY;
  }
}

void attn_bound_call_destroy(attn_bound_call* call) { delete call; }

int32_t attn_bound_call_captured(const attn_bound_call* call) { return call->captured ? 1 : 0; }

int32_t attn_bound_call_run(attn_bound_call* call, void* tensors, attn_schedule* schedule,
                            void* stream, attn_error* error) {
  std::array<void*, ATTN_MOST_BOUND_TENSORS> objects{};
  const auto count = static_cast<std::size_t>(PyTuple_Size(tensors));
  if (count != call->tensors.size()) return ATTN_CALL_UNFIT;
  for (std::size_t i = 0; i < count; ++i)
    objects[i] = PyTuple_GetItem(tensors, static_cast<std::ptrdiff_t>(i));
  return call->run(objects.data(), schedule, stream, error);
}
