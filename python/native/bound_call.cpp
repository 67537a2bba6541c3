#include "bound_call.h"

#include <array>
#include <memory>
#include <new>
#include <vector>

#include "call.h"
#include "exchange.h"
#include "python_abi.h"

namespace attn::python {

// Facts that a tensor must have, and the type of its example.
struct Known {
  std::int32_t place, counts;
  std::uintptr_t alignment;
  std::vector<std::int64_t> dims, strides;
  DlDtype dtype{};
  void* fixed;
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
static bool has_type(void* object, void* wanted) {
  void* const type = PyObject_Type(object);
  Py_DecRef(type);
  return type == wanted;
}

static void* address_in(const DlTensor& tensor) {
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
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

  ~attn_bound_call() {
    for (const Known& known : tensors)
      if (known.type != nullptr) Py_DecRef(known.type);
  }

  bool prepare(void* examples);
  std::int32_t run(void* objects, attn_schedule* schedule, void* stream, attn_error* error);

 private:
  bool read(const Known& known, void* object, Counts& counts);
  bool convert(void* object, DlTensor& tensor) const;
};

bool attn_bound_call::convert(void* object, DlTensor& tensor) const {
  if (exchange->tensor_from_object(object, &tensor) == 0) return true;
  PyErr_Clear();
  return false;
}

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
    if (!convert(object, tensor)) return false;
    known.dtype = tensor.dtype;
    known.type = PyObject_Type(object);
  }
  return true;
}

bool attn_bound_call::read(const Known& known, void* object, Counts& counts) {
  if (known.absent != nullptr) return object == known.absent;
  if (object == nullptr || !has_type(object, known.type)) return false;
  DlTensor tensor{};
  if (!convert(object, tensor)) return false;
  void* const address = address_in(tensor);
  const bool fits = tensor.device.type == device.type && tensor.device.id == device.id &&
                    same_type(tensor.dtype, known.dtype) && same_view(known, tensor, counts) &&
                    reinterpret_cast<std::uintptr_t>(address) % known.alignment == 0;
  if (fits) addresses[static_cast<std::size_t>(known.place)] = address;
  return fits;
}

std::int32_t attn_bound_call::run(void* objects, attn_schedule* schedule, void* stream,
                                  attn_error* error) {
  if (PyTuple_Size(objects) != static_cast<std::ptrdiff_t>(tensors.size())) return ATTN_CALL_UNFIT;
  Counts counts;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!read(tensors[i], PyTuple_GetItem(objects, static_cast<std::ptrdiff_t>(i)), counts))
      return ATTN_CALL_UNFIT;
  }
  const std::int64_t sequences = counts.of[ATTN_COUNTS_SEQUENCES];
  if (sequences < least || sequences > most) return ATTN_CALL_UNFIT;
  attn_status status = attn_binding_set_addresses(binding, addresses.data(), addresses.size(),
                                                  ATTN_CHECK_NOTHING, error);
  if (status == ATTN_STATUS_OK && schedule != nullptr)
    status = attn_schedule_build(schedule, binding, nullptr, sequences, stream, error);
  return status == ATTN_STATUS_OK ? attn_binding_execute(binding, stream, error) : status;
}

static Known known_of(const attn_bound_tensor& tensor) {
  const auto rank = static_cast<std::size_t>(tensor.rank);
  return {tensor.place,
          tensor.counts,
          static_cast<std::uintptr_t>(tensor.alignment > 0 ? tensor.alignment : 1),
          {tensor.dims, tensor.dims + rank},
          {tensor.strides, tensor.strides + rank},
          {},
          tensor.fixed};
}

attn_status attn_bound_call_create(attn_binding* binding, const void* exchange,
                                   const attn_bound_options* options, void* examples,
                                   attn_bound_call** call, attn_error*) {
  const auto* functions = static_cast<const DlExchange*>(exchange);
  if (binding == nullptr || call == nullptr || options == nullptr || functions == nullptr ||
      functions->header.version.major != 1 || functions->tensor_from_object == nullptr)
    return ATTN_STATUS_INVALID_ARGUMENT;
  try {
    auto made = std::make_unique<attn_bound_call>();
    made->binding = binding;
    made->exchange = functions;
    made->device = {options->device_type, options->device};
    made->least = options->least_sequences;
    made->most = options->most_sequences;
    made->addresses.assign(options->addresses, options->addresses + options->address_count);
    for (std::size_t i = 0; i < options->tensor_count; ++i)
      made->tensors.push_back(known_of(options->tensors[i]));
    if (!made->prepare(examples)) return ATTN_STATUS_INVALID_ARGUMENT;
    *call = made.release();
    return ATTN_STATUS_OK;
  } catch (const std::bad_alloc&) {
    return ATTN_STATUS_OUT_OF_MEMORY;
  }
}

void attn_bound_call_destroy(attn_bound_call* call) { delete call; }

int32_t attn_bound_call_run(attn_bound_call* call, void* tensors, attn_schedule* schedule,
                            void* stream, attn_error* error) {
  return call->run(tensors, schedule, stream, error);
}
