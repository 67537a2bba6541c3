#include "repeated.h"

#include <array>
#include <memory>
#include <new>
#include <vector>

#include "call.h"
#include "enqueue.h"
#include "python_abi.h"

namespace attn::python {
namespace {

constexpr const char* kCapsule = "attn_repeated";
constexpr std::size_t kTensors = ATTN_REPEATED_TENSORS, kSettings = ATTN_REPEATED_SETTINGS;
constexpr std::ptrdiff_t kRunArguments = kTensors + kSettings + 3, kBuildArguments = 5;
constexpr std::size_t kWindow = 2;  // among settings

// A call that was made before. The objects are those of the tuple of calls.
struct Repeated {
  std::array<void*, kSettings> settings;
  std::int64_t least_rows, most_rows, least_keys, most_keys;
  bool is_of_stream;
  void* stream;
  attn_bound_call* call;
  attn_schedule* schedule;
};

bool is_between(std::int64_t least, std::int64_t number, std::int64_t most) {
  return least <= number && number <= most;
}

// Objects that are equal; a comparison that fails says no.
bool are_equal(void* x, void* y) {
  constexpr int kEqual = 2;  // Py_EQ
  if (x == y) return true;
  const int equal = PyObject_RichCompareBool(x, y, kEqual);
  if (equal < 0) PyErr_Clear();
  return equal > 0;
}

// The object behind a capsule.
class RepeatedCalls {
 public:
  RepeatedCalls(const DlExchange& exchange, const attn_repeated_build& build, void* words,
                void* kept)
      : exchange_(exchange),
        build_(build),
        words_(new_reference(words)),
        kept_(new_reference(kept)),
        int_(PyTuple_GetItem(words, 0)),
        tuple_(PyTuple_GetItem(words, 1)),
        none_(PyTuple_GetItem(words, 2)),
        tensor_(PyTuple_GetItem(words, 3)) {
    if (build.address_count > 0)
      addresses_.assign(build.addresses, build.addresses + build.address_count);
  }
  RepeatedCalls(const RepeatedCalls&) = delete;
  RepeatedCalls& operator=(const RepeatedCalls&) = delete;
  ~RepeatedCalls() { attn_error_destroy(error_); }

  bool set(void* calls);
  std::int32_t run(void* const* arguments);
  std::int32_t build(void* const* arguments);
  attn_error* error() const { return error_; }

 private:
  bool read_call(void* tuple, Repeated& call) const;
  bool fits(const Repeated& call, void* const* settings, std::int64_t rows, std::int64_t keys,
            void* stream) const;
  bool read_numbers(void* object, DlTensor& tensor) const;
  // A number up to `most`, or the address of so many elements, of which the first is one.
  bool read_count(void* object, std::int64_t most, std::int64_t elements, std::int64_t& number,
                  const std::int32_t*& address) const;
  // Reads an object that is exactly an int. False, and no error of Python's, for others.
  bool read_int(void* object, std::int64_t& number) const;

  const DlExchange& exchange_;
  const attn_repeated_build build_;
  Reference words_, kept_, calls_;
  void *const int_, *const tuple_, *const none_, *const tensor_;
  std::vector<void*> addresses_;
  std::vector<Repeated> repeated_;
  attn_error* error_ = attn_error_create();
};

bool RepeatedCalls::read_int(void* object, std::int64_t& number) const {
  if (!has_type(object, int_)) return false;
  number = PyLong_AsLongLong(object);
  if (number != -1 || PyErr_Occurred() == nullptr) return true;
  PyErr_Clear();
  return false;
}

bool RepeatedCalls::read_call(void* tuple, Repeated& call) const {
  std::size_t next = 0;
  const auto item = [&] { return PyTuple_GetItem(tuple, static_cast<std::ptrdiff_t>(next++)); };
  for (void*& setting : call.settings) setting = item();
  for (std::int64_t* bound :
       {&call.least_rows, &call.most_rows, &call.least_keys, &call.most_keys}) {
    if (!read_int(item(), *bound)) return false;
  }
  void* const stream = item();
  call.is_of_stream = stream != none_;
  call.stream = call.is_of_stream ? PyLong_AsVoidPtr(stream) : nullptr;
  call.call = static_cast<attn_bound_call*>(PyLong_AsVoidPtr(item()));
  void* const schedule = item();
  call.schedule =
      schedule == none_ ? nullptr : static_cast<attn_schedule*>(PyLong_AsVoidPtr(schedule));
  return PyErr_Occurred() == nullptr;
}

bool RepeatedCalls::set(void* calls) {
  std::vector<Repeated> repeated(static_cast<std::size_t>(PyTuple_Size(calls)));
  for (std::size_t i = 0; i < repeated.size(); ++i) {
    if (!read_call(PyTuple_GetItem(calls, static_cast<std::ptrdiff_t>(i)), repeated[i]))
      return false;
  }
  repeated_ = std::move(repeated);
  calls_ = new_reference(calls);
  return true;
}

bool RepeatedCalls::fits(const Repeated& call, void* const* settings, std::int64_t rows,
                         std::int64_t keys, void* stream) const {
  if (call.is_of_stream && call.stream != stream) return false;
  if (!is_between(call.least_rows, rows, call.most_rows)) return false;
  if (!is_between(call.least_keys, keys, call.most_keys)) return false;
  for (std::size_t i = 0; i < kSettings; ++i) {
    if (!are_equal(call.settings[i], settings[i])) return false;
  }
  return true;
}

std::int32_t RepeatedCalls::run(void* const* arguments) {
  void* const* const settings = arguments + kTensors;
  void* const* const rest = settings + kSettings;
  // A list may have other contents than when it was compared.
  std::int64_t rows = 0, keys = 0;
  if (!has_type(settings[kWindow], tuple_) || !read_int(rest[0], rows) || !read_int(rest[1], keys))
    return ATTN_CALL_UNFIT;
  void* const stream = PyLong_AsVoidPtr(rest[2]);
  for (const Repeated& each : repeated_) {
    if (!fits(each, settings, rows, keys, stream)) continue;
    const std::int32_t status = python::run(*each.call, arguments, each.schedule, stream, error_);
    if (status != ATTN_CALL_UNFIT) return status;
  }
  return ATTN_CALL_UNFIT;
}

// One dimension of adjacent i32.
bool RepeatedCalls::read_numbers(void* object, DlTensor& tensor) const {
  constexpr std::uint8_t kInt = 0, kBits = 32;
  if (!has_type(object, tensor_) || !read_tensor(exchange_, object, tensor)) return false;
  return tensor.device.type == build_.device_type && tensor.device.id == build_.device &&
         tensor.dtype.code == kInt && tensor.dtype.bits == kBits && tensor.dtype.lanes == 1 &&
         tensor.rank == 1 &&
         (tensor.dims[0] <= 1 || tensor.strides == nullptr || tensor.strides[0] == 1);
}

bool RepeatedCalls::read_count(void* object, std::int64_t most, std::int64_t elements,
                               std::int64_t& number, const std::int32_t*& address) const {
  number = most;
  if (object == none_) return elements == 1;
  if (read_int(object, number)) return elements == 1 && is_between(0, number, most);
  DlTensor tensor{};
  if (!read_numbers(object, tensor) || tensor.dims[0] != elements) return false;
  address = static_cast<const std::int32_t*>(address_in(tensor));
  number = -1;
  return true;
}

std::int32_t RepeatedCalls::build(void* const* arguments) {
  DlTensor starts{}, lengths{};
  if (build_.binding == nullptr || !read_numbers(arguments[1], lengths)) return ATTN_CALL_UNFIT;
  const std::int64_t count = lengths.dims[0];
  const bool has_starts = arguments[0] != none_;
  if (count > build_.most_sequences) return ATTN_CALL_UNFIT;
  if (has_starts && (!read_numbers(arguments[0], starts) || starts.dims[0] != count + 1))
    return ATTN_CALL_UNFIT;
  std::int64_t number = 0, shared = ATTN_SHARED_BESIDE;
  const std::int32_t* address = nullptr;
  const bool is_beside = arguments[3] == none_;
  if (!is_beside && (!read_int(arguments[3], shared) || shared < 0)) return ATTN_CALL_UNFIT;
  if (!read_count(arguments[2], count, is_beside ? 2 : 1, number, address)) return ATTN_CALL_UNFIT;
  addresses_[static_cast<std::size_t>(build_.starts)] =
      has_starts ? address_in(starts) : build_.ones;
  addresses_[static_cast<std::size_t>(build_.lengths)] = address_in(lengths);
  const attn_status status = attn_binding_set_addresses(
      build_.binding, addresses_.data(), addresses_.size(), ATTN_CHECK_NOTHING, error_);
  if (status != ATTN_STATUS_OK) return status;
  void* const stream = PyLong_AsVoidPtr(arguments[4]);
  return attn_schedule_build_shared(build_.schedule, build_.binding, address, number, shared,
                                    stream, error_);
}

RepeatedCalls& calls_of(void* capsule) {
  return *static_cast<RepeatedCalls*>(PyCapsule_GetPointer(capsule, kCapsule));
}

void destroy(void* capsule) { delete &calls_of(capsule); }

// Functions of Python.
void* run_function(void* capsule, void* const* arguments, std::ptrdiff_t count) {
  return PyLong_FromLong(count == kRunArguments ? calls_of(capsule).run(arguments)
                                                : ATTN_CALL_UNFIT);
}
void* build_function(void* capsule, void* const* arguments, std::ptrdiff_t count) {
  return PyLong_FromLong(count == kBuildArguments ? calls_of(capsule).build(arguments)
                                                  : ATTN_CALL_UNFIT);
}

Method run_method{"run", run_function, kFastCall, nullptr};
Method build_method{"build", build_function, kFastCall, nullptr};

}  // namespace
}  // namespace attn::python

using namespace attn::python;

void* attn_repeated_create(const void* exchange, const attn_repeated_build* build, void* words,
                           void* kept) {
  try {
    auto made = std::make_unique<RepeatedCalls>(*static_cast<const DlExchange*>(exchange), *build,
                                                words, kept);
    void* const capsule = PyCapsule_New(made.get(), kCapsule, destroy);
    if (capsule != nullptr) made.release();
    return capsule;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

int32_t attn_repeated_set(void* capsule, void* calls) {
  try {
    if (calls_of(capsule).set(calls)) return 0;
    if (PyErr_Occurred() == nullptr) PyErr_BadArgument();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  }
  return -1;
}

void* attn_repeated_run(void* capsule) { return PyCFunction_NewEx(&run_method, capsule, nullptr); }
void* attn_repeated_build_function(void* capsule) {
  return PyCFunction_NewEx(&build_method, capsule, nullptr);
}
attn_error* attn_repeated_error(void* capsule) { return calls_of(capsule).error(); }
