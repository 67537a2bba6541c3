// C++17 wrapper of attn.h: RAII handles, and errors as values. Nothing here throws, except
// std::bad_alloc from the standard library.
//
//   attn::Status run(void* q, ..., void* stream) {
//     ATTN_TRY_ASSIGN(auto runtime, attn::Runtime::open());
//     ATTN_TRY_ASSIGN(auto executable, attn::Executable::load_file(runtime, "causal.attnplan"));
//     attn::Arguments arguments;
//     arguments.tensor("q", {q, attn::DType::bf16, dims, strides}) ..;
//     ATTN_TRY_ASSIGN(auto binding, executable.bind(arguments));
//     return binding.execute(stream);
//   }
//
// attn.h documents semantics, errors and thread-safety. Runtime, Executable, PlanFile and Picked
// are reference-counted: copies share the object. The other handles are move-only. A
// default-constructed or moved-from handle is empty: it converts to false, its names, sizes and
// addresses are empty, and calls that can fail return invalid_argument. handle() is the object of
// attn.h, which the wrapper goes on owning; null if it is empty. A constructor with such an object
// takes it over.
//
// All names are in the inline namespace attn::v2, so that code built with different versions of
// this header, and the library itself, can be linked into one program.
#ifndef ATTN_HPP
#define ATTN_HPP

#if __cplusplus < 201703L
#error "attn.hpp needs C++17 or later (-std=c++17)"
#endif

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "attn.h"

namespace attn {
inline namespace v2 {

// What went wrong, as attn_status.
enum class Code : std::int32_t {
  ok = ATTN_STATUS_OK,
  invalid_argument = ATTN_STATUS_INVALID_ARGUMENT,
  invalid_spec = ATTN_STATUS_INVALID_SPEC,
  unsupported = ATTN_STATUS_UNSUPPORTED,
  binding = ATTN_STATUS_BINDING,
  cuda = ATTN_STATUS_CUDA,
  cudnn = ATTN_STATUS_CUDNN,
  worker = ATTN_STATUS_WORKER,
  io = ATTN_STATUS_IO,
  mismatch = ATTN_STATUS_MISMATCH,
  plan_truncated = ATTN_STATUS_PLAN_TRUNCATED,
  plan_damaged = ATTN_STATUS_PLAN_DAMAGED,
  plan_foreign = ATTN_STATUS_PLAN_FOREIGN,
  plan_newer = ATTN_STATUS_PLAN_NEWER,
  plan_version = ATTN_STATUS_PLAN_VERSION,
  plan_device = ATTN_STATUS_PLAN_DEVICE,
  internal = ATTN_STATUS_INTERNAL,
  out_of_memory = ATTN_STATUS_OUT_OF_MEMORY,
  plan_shape = ATTN_STATUS_PLAN_SHAPE,
  plan_pending = ATTN_STATUS_PLAN_PENDING,
  plan_refused = ATTN_STATUS_PLAN_REFUSED,
  nccl = ATTN_STATUS_NCCL
};
// Its name, such as "plan_version".
inline const char* to_string(Code code) { return attn_status_name(static_cast<attn_status>(code)); }
// The exit code of attnc for it, see attn_status_exit_code.
inline int exit_code(Code code) { return attn_status_exit_code(static_cast<attn_status>(code)); }

// Classifies CUDA failures by what the application can do.
enum class CudaFailure : std::int32_t {
  none = ATTN_CUDA_NONE,
  other = ATTN_CUDA_OTHER,
  out_of_memory = ATTN_CUDA_OUT_OF_MEMORY,
  fault = ATTN_CUDA_FAULT,  // sticky
  no_driver = ATTN_CUDA_NO_DRIVER
};

// Why a call failed.
struct Error {
  Code code = Code::internal;
  std::string message;             // one sentence, no period
  std::vector<std::string> notes;  // what was tried, text from cuDNN or the driver, hints
  std::string payload;             // JSON, or empty
  CudaFailure cuda_failure = CudaFailure::none;
  int cuda_code = 0;  // CUresult, cudaError_t

  // The message, followed by a line "  note: .." for each note.
  std::string to_text() const {
    std::string text = message;
    for (const std::string& note : notes) text += "\n  note: " + note;
    return text;
  }
};

// Success or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::make_unique<Error>(std::move(error))) {}

  // Whether it is success.
  bool ok() const { return error_ == nullptr; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }  // requires !ok()

 private:
  std::unique_ptr<Error> error_;
};

// A T or an Error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  // Whether there is a T.
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Each requires ok().
  T& value() & { return *std::get_if<0>(&state_); }
  const T& value() const& { return *std::get_if<0>(&state_); }
  T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return *std::get_if<1>(&state_); }  // requires !ok()

 private:
  std::variant<T, Error> state_;
};

// Returns from the enclosing function if `expression` (a Status or Result) is an error.
#define ATTN_TRY(expression)                                \
  do {                                                      \
    if (auto attn_tried = (expression); !attn_tried.ok()) { \
      return attn_tried.error();                            \
    }                                                       \
  } while (false)

// ATTN_TRY_ASSIGN(auto x, f()): declares or assigns the value, or returns the error. This version
// is for this header, where __COUNTER__ would break the one-definition rule; users get the one at
// the end of the file.
#define ATTN_TRY_ASSIGN(target, expression) ATTN_TRY_ASSIGN_1_(target, expression, __LINE__)
#define ATTN_TRY_ASSIGN_1_(target, expression, id) ATTN_TRY_ASSIGN_2_(target, expression, id)
#define ATTN_TRY_ASSIGN_2_(target, expression, id)           \
  auto attn_tried_##id = (expression);                       \
  if (!attn_tried_##id.ok()) return attn_tried_##id.error(); \
  target = std::move(attn_tried_##id).value()

// Element types.
enum class DType : std::int32_t {
  f16 = ATTN_DTYPE_F16,
  bf16 = ATTN_DTYPE_BF16,
  f32 = ATTN_DTYPE_F32,
  f64 = ATTN_DTYPE_F64,
  i8 = ATTN_DTYPE_I8,
  u8 = ATTN_DTYPE_U8,
  i32 = ATTN_DTYPE_I32,
  i64 = ATTN_DTYPE_I64,
  boolean = ATTN_DTYPE_BOOL,
  e4m3 = ATTN_DTYPE_E4M3,
  e5m2 = ATTN_DTYPE_E5M2,
  e8m0 = ATTN_DTYPE_E8M0
};
// Its name, such as "bf16".
inline const char* to_string(DType type) { return attn_dtype_name(static_cast<attn_dtype>(type)); }
// Bytes per element.
inline std::size_t size_of(DType type) { return attn_dtype_bytes(static_cast<attn_dtype>(type)); }
// Whether the type is one of floats; the scales of blocks (e8m0) are.
inline bool is_float(DType type) {
  return type == DType::f16 || type == DType::bf16 || type == DType::f32 || type == DType::f64 ||
         type == DType::e4m3 || type == DType::e5m2 || type == DType::e8m0;
}

// What a tensor is for.
enum class Role : std::int32_t {
  query = ATTN_ROLE_QUERY,
  key = ATTN_ROLE_KEY,
  value = ATTN_ROLE_VALUE,
  captured = ATTN_ROLE_CAPTURED,
  output = ATTN_ROLE_OUTPUT,
  stats = ATTN_ROLE_STATS,
  control = ATTN_ROLE_CONTROL,
  saved = ATTN_ROLE_SAVED,
  cotangent = ATTN_ROLE_COTANGENT,
  gradient = ATTN_ROLE_GRADIENT,
  amax = ATTN_ROLE_AMAX
};
// Its name, such as "query".
inline const char* to_string(Role role) { return attn_role_name(static_cast<attn_role>(role)); }

// Which plan of a training pair.
enum class Direction : std::int32_t {
  forward = ATTN_DIRECTION_FORWARD,
  backward = ATTN_DIRECTION_BACKWARD
};

// Levels of messages, the least important first.
enum class LogLevel : std::int32_t {
  debug = ATTN_LOG_DEBUG,
  info = ATTN_LOG_INFO,
  warning = ATTN_LOG_WARNING,
  error = ATTN_LOG_ERROR
};

// Whether set_addresses checks the addresses.
enum class Check : std::int32_t { addresses = ATTN_CHECK_ADDRESSES, nothing = ATTN_CHECK_NOTHING };

namespace detail {

template <auto end>
struct Ender {
  template <typename Handle>
  void operator()(Handle* handle) const {
    end(handle);
  }
};
template <typename Handle, auto end>
using Owned = std::unique_ptr<Handle, Ender<end>>;

// A reference to a reference-counted handle.
template <typename Handle, auto retain, auto release>
class Shared {
 public:
  explicit Shared(Handle* handle = nullptr) : handle_(handle) {}
  Shared(const Shared& other) : handle_(other.handle_) { retain(handle_); }
  Shared(Shared&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Shared& operator=(Shared other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Shared() { release(handle_); }
  Handle* get() const { return handle_; }

 private:
  Handle* handle_;
};

// Calls C functions and converts their errors. For one thread at a time.
class Caller {
 public:
  template <typename Function, typename... Values>
  Status operator()(const Function& function, Values... values) const {
    if (error_ == nullptr) error_.reset(attn_error_create());
    const attn_status status = function(values..., error_.get());
    if (status == ATTN_STATUS_OK) return {};
    Error error{static_cast<Code>(status),
                attn_error_message(error_.get()),
                {},
                attn_error_payload(error_.get()),
                static_cast<CudaFailure>(attn_error_cuda_failure(error_.get())),
                attn_error_cuda_code(error_.get())};
    for (std::size_t i = 0; i < attn_error_note_count(error_.get()); ++i) {
      error.notes.emplace_back(attn_error_note(error_.get(), i));
    }
    return error;
  }

 private:
  mutable Owned<attn_error, attn_error_destroy> error_;  // created by the first call
};

// Calls a function whose last output is a `Handle*`, and wraps it in `Wrapped`.
template <typename Wrapped, typename Handle, typename Function, typename... Values>
Result<Wrapped> make(const Function& function, Values... values) {
  Handle* handle = nullptr;
  ATTN_TRY(Caller()(function, values..., &handle));
  return Wrapped(handle);
}

}  // namespace detail

// Receives messages; called on the thread where the event occurs, possibly several at once.
using LogSink = std::function<void(LogLevel, std::string_view message)>;

// Application allocator for device memory; see attn_allocate_callback and attn_free_callback. Set
// both or neither. Must not throw.
struct Allocator {
  std::function<void*(std::size_t bytes, void* stream)> allocate = {};
  std::function<void(void* memory, std::size_t bytes, void* stream)> free = {};
};

// Options of Runtime::open; attn_runtime_options says more.
struct RuntimeOptions {
  int device = 0;
  std::string cudnn_folder = {};                     // empty: $ATTN_CUDNN_DIR or default paths
  int most_handles = 0;                              // 0: 16
  std::uint64_t cache_entries = 0, cache_bytes = 0;  // 0: 256 and 1 GiB
  bool check_values = true;
  LogSink log = {};          // must not throw
  Allocator allocator = {};  // empty: the driver allocates
};

// The device, and the cuDNN that is used: version 0 and no library if none can be loaded.
struct RuntimeInfo {
  std::string device_name;
  int device = 0;
  int sm = 0;
  std::int64_t cudnn_version = 0;
  std::string cudnn_library;
};

// A device, its cuDNN, and a cache of executables. Any number of threads may use it.
class Runtime {
 public:
  Runtime() = default;
  // Opens a device with its primary context. Errors: cuda; invalid_argument if only half of the
  // allocator is set.
  static Result<Runtime> open(const RuntimeOptions& options = {}) {
    attn_runtime_options plain = {};
    plain.size = sizeof plain;
    if (!options.cudnn_folder.empty()) plain.cudnn_folder = options.cudnn_folder.c_str();
    plain.device = options.device;
    plain.most_handles = options.most_handles;
    plain.cache_entries = options.cache_entries;
    plain.cache_bytes = options.cache_bytes;
    plain.skip_value_checks = options.check_values ? 0 : 1;
    if (options.log) {
      plain.log = call_sink;
      plain.log_user = new LogSink(options.log);
      plain.log_release = delete_sink;
    }
    if (options.allocator.allocate) plain.allocate_memory = call_allocate;
    if (options.allocator.free) plain.free_memory = call_free;
    if (plain.allocate_memory != nullptr || plain.free_memory != nullptr) {
      plain.allocator_user = new Allocator(options.allocator);
      plain.allocator_release = delete_allocator;
    }
    return detail::make<Runtime, attn_runtime>(attn_runtime_open, &plain);
  }

  // Loads cuDNN if no plan has done so.
  Result<RuntimeInfo> describe() const {
    attn_runtime_info info = {};
    info.size = sizeof info;
    ATTN_TRY(detail::Caller()(attn_runtime_describe, handle(), &info));
    return RuntimeInfo{info.device_name, info.device, info.sm, info.cudnn_version,
                       info.cudnn_library};
  }

  // Counts of requests since the runtime was opened, or since they were reset.
  Result<attn_cache_counters> cache_counters() const { return counters(0); }
  // The same, and resets them to 0.
  Result<attn_cache_counters> reset_cache_counters() { return counters(1); }
  // Empties the cache; executables still held remain valid.
  Status clear_cache() { return detail::Caller()(attn_runtime_cache_clear, handle()); }

  attn_runtime* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }
  explicit Runtime(attn_runtime* handle) : handle_(handle) {}  // takes over the reference

 private:
  static void call_sink(void* sink, attn_log_level level, const char* message) {
    (*static_cast<LogSink*>(sink))(static_cast<LogLevel>(level), message);
  }
  static void delete_sink(void* sink) { delete static_cast<LogSink*>(sink); }
  static void* call_allocate(void* allocator, std::size_t bytes, void* stream) {
    return static_cast<Allocator*>(allocator)->allocate(bytes, stream);
  }
  static void call_free(void* allocator, void* memory, std::size_t bytes, void* stream) {
    static_cast<Allocator*>(allocator)->free(memory, bytes, stream);
  }
  static void delete_allocator(void* allocator) { delete static_cast<Allocator*>(allocator); }

  Result<attn_cache_counters> counters(std::int32_t reset) const {
    attn_cache_counters counters = {};
    counters.size = sizeof counters;
    ATTN_TRY(detail::Caller()(attn_runtime_cache_counters, handle(), reset, &counters));
    return counters;
  }

  detail::Shared<attn_runtime, attn_runtime_retain, attn_runtime_release> handle_;
};

// Dims in logical order, strides in elements.
struct TensorInfo {
  std::string name;
  Role role = Role::captured;
  DType dtype = DType::f32;
  bool is_output = false;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  std::int64_t alignment = 0;
  std::string addressed_by;
  std::int64_t bytes = 0;  // to allocate
};

// A scalar to bind: f32 or i32.
struct ParamInfo {
  std::string name;
  DType dtype = DType::f32;
};

namespace detail {

inline TensorInfo tensor_info(const attn_tensor_info& info) {
  return TensorInfo{info.name,
                    static_cast<Role>(info.role),
                    static_cast<DType>(info.dtype),
                    info.is_output != 0,
                    std::vector<std::int64_t>(info.dims, info.dims + info.rank),
                    std::vector<std::int64_t>(info.strides, info.strides + info.rank),
                    info.alignment,
                    info.addressed_by,
                    info.bytes};
}
inline ParamInfo param_info(const attn_param_info& info) {
  return ParamInfo{info.name, static_cast<DType>(info.dtype)};
}

// Returns wrap(info) for each i < `count`, with `info` read by call(function, owner .., i, &info).
template <typename Info, typename Wrap, typename Function, typename... Owner>
auto read_list(const Wrap& wrap, std::size_t count, const Function& function, Owner... owner)
    -> Result<std::vector<decltype(wrap(std::declval<const Info&>()))>> {
  const Caller call;
  std::vector<decltype(wrap(std::declval<const Info&>()))> list;
  for (std::size_t i = 0; i < count; ++i) {
    Info info = {};
    info.size = sizeof info;
    ATTN_TRY(call(function, owner..., i, &info));
    list.push_back(wrap(info));
  }
  return list;
}

}  // namespace detail

// Device memory owned by the caller. Empty strides: dense row-major.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims = {};
  std::vector<std::int64_t> strides = {};
};

// Tensors and params by name, in any order; setting a name again replaces its value. The first
// invalid value, such as a DLPack tensor in host memory, becomes error(), which bind returns.
class Arguments {
 public:
  Arguments() {
    attn_arguments* made = nullptr;
    keep(call_(attn_arguments_create, &made));
    handle_.reset(made);
  }

  // Sets a tensor. The view is copied; the memory stays the caller's.
  Arguments& tensor(const std::string& name, const TensorView& view) {
    attn_tensor plain = {};
    plain.size = sizeof plain;
    plain.name = name.c_str();
    plain.data = view.data;
    plain.dtype = static_cast<attn_dtype>(view.dtype);
    plain.rank = static_cast<std::int32_t>(view.dims.size());
    plain.dims = view.dims.data();
    if (view.strides.empty()) return keep(call_(attn_arguments_tensor, handle(), &plain));
    if (view.strides.size() != view.dims.size()) {
      return keep(Error{Code::binding,
                        "tensor '" + name + "' has different numbers of dims and strides",
                        {},
                        {}});
    }
    plain.strides = view.strides.data();
    return keep(call_(attn_arguments_tensor, handle(), &plain));
  }

  // A DLTensor of any version of dlpack.h. Its fields are copied; its owner keeps the memory alive.
  template <typename DlTensor, typename = decltype(std::declval<const DlTensor&>().byte_offset)>
  Arguments& tensor(const std::string& name, const DlTensor& dl_tensor) {
    const void* address = &dl_tensor;
    return keep(call_(attn_arguments_dlpack, handle(), name.c_str(), address));
  }

  // Sets only the address. A tensor that was not set before gets the plan's dtype, dims and
  // strides.
  Arguments& address(const std::string& name, void* data) {
    return keep(call_(attn_arguments_address, handle(), name.c_str(), data));
  }

  // Sets a param: an f32, or an i32.
  Arguments& param(const std::string& name, double value) { return param(name, DType::f32, value); }
  Arguments& param(const std::string& name, std::int32_t value) {
    return param(name, DType::i32, static_cast<double>(value));
  }
  // Sets a param; `dtype` is f32 or i32.
  Arguments& param(const std::string& name, DType dtype, double value) {
    const auto plain = static_cast<attn_dtype>(dtype);
    return keep(call_(attn_arguments_param, handle(), name.c_str(), plain, value));
  }

  const std::optional<Error>& error() const { return error_; }  // the first error
  attn_arguments* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }

 private:
  Arguments& keep(const Status& status) {
    if (!status.ok() && !error_) error_ = status.error();
    return *this;
  }

  detail::Caller call_;
  detail::Owned<attn_arguments, attn_arguments_destroy> handle_;
  std::optional<Error> error_;
};

// Where the workspace of a binding's executes is.
class Workspace {
 public:
  // The binding allocates and keeps it.
  static Workspace owned() { return Workspace(ATTN_WORKSPACE_OWNED, nullptr); }
  // The caller's device memory, workspace_bytes() long and aligned to 256 bytes. Nothing else may
  // use it meanwhile.
  static Workspace of(void* memory) { return Workspace(ATTN_WORKSPACE_CALLER, memory); }
  // Each execute allocates and frees it on its stream.
  static Workspace stream_ordered() { return Workspace(ATTN_WORKSPACE_STREAM_ORDERED, nullptr); }

  // The options of attn_binding_create that say this.
  attn_bind_options options() const {
    attn_bind_options plain = {};
    plain.size = sizeof plain;
    plain.workspace = kind_;
    plain.workspace_memory = memory_;
    return plain;
  }

 private:
  Workspace(attn_workspace kind, void* memory) : kind_(kind), memory_(memory) {}
  attn_workspace kind_;
  void* memory_;
};

// Checked arguments and a workspace. For one thread at a time. Executes on several streams must not
// overlap: they share outputs, workspace, and copies of page tables whose row stride is larger than
// the plan's.
class Binding {
 public:
  Binding() = default;
  // Sets a param for later executes. Errors: binding.
  Status set_param(const std::string& name, double value) {
    return call_(attn_binding_set_param, handle(), name.c_str(), value);
  }
  // Later executes use other memory of the same shapes, in the order of Executable::tensors().
  // Errors: binding, cudnn.
  Status set_addresses(const std::vector<void*>& addresses, Check check = Check::addresses) {
    return call_(attn_binding_set_addresses, handle(), addresses.data(), addresses.size(),
                 static_cast<attn_check>(check));
  }
  // Later executes use this workspace of the caller's. Errors: binding, cudnn.
  Status set_workspace(void* memory) { return call_(attn_binding_set_workspace, handle(), memory); }
  // Enqueues on a stream (CUstream, cudaStream_t), and returns without waiting. Errors: cuda,
  // cudnn.
  Status execute(void* stream) { return call_(attn_binding_execute, handle(), stream); }
  // A CUgraph for use as a child node; the binding owns it, and it is valid until the next call.
  Result<void*> cuda_graph() {
    void* graph = nullptr;
    ATTN_TRY(call_(attn_binding_cuda_graph, handle(), &graph));
    return graph;
  }

  attn_binding* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }
  // Gives up the handle, which the caller then owns.
  attn_binding* release() { return handle_.release(); }
  explicit Binding(attn_binding* handle) : handle_(handle) {}  // owns it

 private:
  detail::Caller call_;
  detail::Owned<attn_binding, attn_binding_destroy> handle_;
};

// An execute of a binding as a CUDA graph. For one thread at a time.
class Graph {
 public:
  Graph() = default;
  // Takes ownership of the binding, unless it fails.
  static Result<Graph> capture(Binding&& binding) {
    attn_binding* taken = binding.handle();
    attn_graph* graph = nullptr;
    ATTN_TRY(detail::Caller()(attn_graph_from_binding, &taken, &graph));
    binding.release();
    return Graph(graph);
  }

  // Like Binding::set_param; the next launch updates the graph.
  Status set_param(const std::string& name, double value) {
    return call_(attn_graph_set_param, handle(), name.c_str(), value);
  }
  // Like Binding::set_addresses; the next launch updates the graph.
  Status set_addresses(const std::vector<void*>& addresses, Check check = Check::addresses) {
    return call_(attn_graph_set_addresses, handle(), addresses.data(), addresses.size(),
                 static_cast<attn_check>(check));
  }
  // Enqueues the execute on a stream, and returns without waiting. Errors: cuda, cudnn.
  Status launch(void* stream) { return call_(attn_graph_launch, handle(), stream); }

  attn_graph* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }
  explicit Graph(attn_graph* handle) : handle_(handle) {}  // owns it

 private:
  detail::Caller call_;
  detail::Owned<attn_graph, attn_graph_destroy> handle_;
};

// Returns whether to accept a plan file, given its contents; called before any of it is parsed.
// Must not throw.
using Verify = std::function<bool(std::string_view file)>;

// A plan is code: load only plans you trust. A file with another hash, or one that `verify`
// rejects, is the error plan_refused.
struct LoadOptions {
  LoadOptions(Direction its_direction = Direction::forward) : direction(its_direction) {}

  Direction direction;
  std::optional<std::string> sha256 = {};  // 64 hexadecimal digits; nullopt: not checked
  Verify verify = {};
};

namespace detail {

// Sets hash and verify of attn_load_options or attn_picker_options; points into `options`.
template <typename Plain, typename Options>
void set_trust(Plain& plain, const Options& options) {
  if (options.sha256) plain.sha256 = options.sha256->c_str();
  if (!options.verify) return;
  plain.verify = [](void* verify, const void* bytes, std::size_t count) -> std::int32_t {
    return (*static_cast<const Verify*>(verify))({static_cast<const char*>(bytes), count}) ? 0 : 1;
  };
  plain.verify_user = const_cast<Verify*>(&options.verify);
}

inline attn_load_options plain_options(const LoadOptions& options) {
  attn_load_options plain = {};
  plain.size = sizeof plain;
  plain.direction = static_cast<attn_direction>(options.direction);
  set_trust(plain, options);
  return plain;
}

}  // namespace detail

// Dimensions of an attention.
enum class Dim : std::int32_t {
  B = ATTN_DIM_B,
  Hq = ATTN_DIM_HQ,
  Hkv = ATTN_DIM_HKV,
  Sq = ATTN_DIM_SQ,
  Skv = ATTN_DIM_SKV,
  Dqk = ATTN_DIM_DQK,
  Dv = ATTN_DIM_DV
};
// Its name, such as "Hkv".
inline const char* to_string(Dim dim) { return attn_dim_name(static_cast<attn_dim>(dim)); }

// A dimension's size, in elements.
struct Size {
  Dim dim;
  std::int64_t size;
};

// The sizes a plan is for.
class Shape {
 public:
  Shape() = default;
  explicit Shape(const attn_shape& plain) : plain_(plain) {}
  std::int64_t operator[](Dim dim) const { return plain_.sizes[static_cast<std::size_t>(dim)]; }
  // Whether the plan also serves smaller sizes of `dim`.
  bool pads(Dim dim) const { return (plain_.padded >> static_cast<unsigned>(dim) & 1U) != 0; }

 private:
  attn_shape plain_ = {};
};

// A plan of a plan file, read without a GPU.
struct PlanInfo {
  std::string name, signature, target, spec;
  int sm = 0;
  Direction direction = Direction::forward;
  std::int64_t cudnn_version = 0;
  std::int64_t workspace_bytes = 0, device_bytes = 0;
  std::vector<TensorInfo> tensors;
  std::vector<ParamInfo> params;
  Shape shape;
};

// The plans of a file. Needs neither CUDA nor cuDNN. Immutable; any number of threads may use it.
class PlanFile {
 public:
  PlanFile() = default;
  // Only hash and verify of the options are used.
  static Result<PlanFile> open(const std::string& path, const LoadOptions& options = {}) {
    const attn_load_options plain = detail::plain_options(options);
    return detail::make<PlanFile, attn_plan>(attn_plan_open, path.c_str(), &plain);
  }
  // `file` holds the contents of a plan file.
  static Result<PlanFile> open_memory(std::string_view file, const LoadOptions& options = {}) {
    const attn_load_options plain = detail::plain_options(options);
    const void* bytes = file.data();
    return detail::make<PlanFile, attn_plan>(attn_plan_open_memory, bytes, file.size(), &plain);
  }

  // Number of plans.
  std::size_t size() const { return attn_plan_count(handle()); }
  // `index` below size().
  Result<PlanInfo> plan(std::size_t index) const {
    const attn_plan* handle = this->handle();
    attn_plan_info info = {};
    info.size = sizeof info;
    ATTN_TRY(detail::Caller()(attn_plan_describe, handle, index, &info));
    PlanInfo plan{info.name,
                  info.signature,
                  info.target,
                  info.spec,
                  info.sm,
                  static_cast<Direction>(info.direction),
                  info.cudnn_version,
                  info.workspace_bytes,
                  info.device_bytes,
                  {},
                  {},
                  shape_of(info)};
    ATTN_TRY_ASSIGN(plan.tensors,
                    detail::read_list<attn_tensor_info>(detail::tensor_info, info.tensor_count,
                                                        attn_plan_tensor, handle, index));
    ATTN_TRY_ASSIGN(plan.params,
                    detail::read_list<attn_param_info>(detail::param_info, info.param_count,
                                                       attn_plan_param, handle, index));
    return plan;
  }

  attn_plan* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }
  explicit PlanFile(attn_plan* handle) : handle_(handle, attn_plan_close) {}  // owns it

 private:
  static Shape shape_of(const attn_plan_info& info) {
    attn_shape shape = {};
    for (std::size_t i = 0; i < ATTN_DIM_COUNT; ++i) shape.sizes[i] = info.sizes[i];
    shape.padded = info.padded;
    return Shape(shape);
  }

  std::shared_ptr<attn_plan> handle_;
};

// A loaded plan. Any number of threads may use it.
class Executable {
 public:
  Executable() = default;
  // A Direction converts to LoadOptions.
  static Result<Executable> load_file(const Runtime& runtime, const std::string& path,
                                      const LoadOptions& options = {}) {
    const attn_load_options plain = detail::plain_options(options);
    attn_executable* handle = nullptr;
    ATTN_TRY(detail::Caller()(attn_executable_load_file, runtime.handle(), path.c_str(), &plain,
                              &handle));
    return adopt(handle);
  }
  // `file` holds the contents of a plan file.
  static Result<Executable> load_memory(const Runtime& runtime, std::string_view file,
                                        const LoadOptions& options = {}) {
    const attn_load_options plain = detail::plain_options(options);
    const void* bytes = file.data();
    attn_executable* handle = nullptr;
    ATTN_TRY(detail::Caller()(attn_executable_load_memory, runtime.handle(), bytes, file.size(),
                              &plain, &handle));
    return adopt(handle);
  }
  // Loads one plan of an open file.
  static Result<Executable> load(const Runtime& runtime, const PlanFile& file, std::size_t index) {
    const attn_plan* plan = file.handle();
    attn_executable* handle = nullptr;
    ATTN_TRY(detail::Caller()(attn_executable_load_plan, runtime.handle(), plan, index, &handle));
    return adopt(handle);
  }
  // Takes over the reference, also on failure.
  static Result<Executable> adopt(attn_executable* handle) {
    Executable executable(handle);
    ATTN_TRY_ASSIGN(executable.about_, read(handle));
    return executable;
  }

  // What attn_executable_info and the functions of its tensors and params say. References are valid
  // while a copy of this object lives.
  const std::string& name() const { return about().name; }
  const std::string& signature() const { return about().signature; }  // 32 hexadecimal digits
  const std::string& target() const { return about().target; }
  Direction direction() const { return about().direction; }
  std::int64_t workspace_bytes() const { return about().workspace_bytes; }  // of an execute
  std::int64_t device_bytes() const { return about().device_bytes; }        // while it is loaded
  const std::vector<TensorInfo>& tensors() const { return about().tensors; }
  const std::vector<ParamInfo>& params() const { return about().params; }

  // `kept_addresses`: number of address sets kept prepared for set_addresses; 0: 8. `stream`: that
  // of the executes, if it may be being captured. Errors: arguments.error(), and those of
  // attn_binding_create.
  Result<Binding> bind(const Arguments& arguments, Workspace workspace = Workspace::owned(),
                       std::uint64_t kept_addresses = 0, void* stream = nullptr) const {
    if (arguments.error()) return *arguments.error();
    attn_bind_options options = workspace.options();
    options.kept_addresses = kept_addresses;
    options.stream = stream;
    return detail::make<Binding, attn_binding>(attn_binding_create, handle(), arguments.handle(),
                                               &options);
  }

  attn_executable* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }

 private:
  explicit Executable(attn_executable* handle) : handle_(handle) {}

  struct About {
    std::string name, signature, target;
    Direction direction = Direction::forward;
    std::int64_t workspace_bytes = 0, device_bytes = 0;
    std::vector<TensorInfo> tensors;
    std::vector<ParamInfo> params;
  };

  const About& about() const {
    static const About nothing = {};
    return about_ ? *about_ : nothing;
  }

  static Result<std::shared_ptr<const About>> read(attn_executable* handle) {
    attn_executable_info info = {};
    info.size = sizeof info;
    ATTN_TRY(detail::Caller()(attn_executable_describe, handle, &info));
    auto about = std::make_shared<About>();
    about->name = info.name;
    about->signature = info.signature;
    about->target = info.target;
    about->direction = static_cast<Direction>(info.direction);
    about->workspace_bytes = info.workspace_bytes;
    about->device_bytes = info.device_bytes;
    ATTN_TRY_ASSIGN(about->tensors,
                    detail::read_list<attn_tensor_info>(detail::tensor_info, info.tensor_count,
                                                        attn_executable_tensor, handle));
    ATTN_TRY_ASSIGN(about->params,
                    detail::read_list<attn_param_info>(detail::param_info, info.param_count,
                                                       attn_executable_param, handle));
    return std::shared_ptr<const About>(std::move(about));
  }

  detail::Shared<attn_executable, attn_executable_retain, attn_executable_release> handle_;
  std::shared_ptr<const About> about_;
};

// What to do if no plan serves the sizes: see attn_pick_policy.
enum class Build : std::int32_t {
  never = ATTN_BUILD_NEVER,
  now = ATTN_BUILD_NOW,
  in_background = ATTN_BUILD_IN_BACKGROUND
};

// How a picked plan fits: see attn_fit for what `bucket` asks of the tensors.
enum class Fit : std::int32_t {
  exact = ATTN_FIT_EXACT,
  bucket = ATTN_FIT_BUCKET,
  built = ATTN_FIT_BUILT
};

// How Picker::pick chooses; `retry` repeats builds that failed before.
struct Policy {
  bool buckets = true;  // plans of larger sizes may be used
  Build build = Build::never;
  bool retry = false;
};

// Options of a picker; attn_picker_options says more.
struct PickerOptions {
  std::string attnc = {};                   // program that builds plans; empty: never build
  std::string target = {};                  // empty: see attn_picker_options.target
  std::vector<std::string> arguments = {};  // extra arguments for `attnc compile`
  std::uint64_t most_built = 0;             // 0: 256
  int timeout_seconds = 0;                  // 0: 300
  std::optional<std::string> sha256 = {};   // of the loaded file: see LoadOptions
  Verify verify = {};
};

// A spec, as text or JSON, and values for its parameters and open sizes.
struct Spec {
  std::string text;
  std::vector<std::pair<std::string, std::string>> bindings = {};
};

// The executables that serve the requested sizes.
class Picked {
 public:
  Picked() = default;
  explicit Picked(const attn_picked& plain)  // takes over the references
      : fit_(plain.fit), shape_(plain.shape), forward_(plain.forward), backward_(plain.backward) {}

  // How the plan fits the sizes.
  Fit fit() const { return static_cast<Fit>(fit_); }
  // The sizes of the plan, which are those to bind.
  const Shape& shape() const { return shape_; }
  // Null if there is no plan of that direction. The same plan has the same handle as long as the
  // picker keeps it, so the handle can serve as a key, for example of cached bindings.
  attn_executable* handle(Direction direction = Direction::forward) const {
    return direction == Direction::backward ? backward_.get() : forward_.get();
  }
  // Whether there is a plan of either direction.
  explicit operator bool() const { return forward_.get() != nullptr || backward_.get() != nullptr; }
  // Also reads the plan's tensors and params, which handle() does not. Errors: invalid_argument if
  // there is no plan of that direction.
  Result<Executable> executable(Direction direction = Direction::forward) const {
    attn_executable_retain(handle(direction));
    return Executable::adopt(handle(direction));
  }

 private:
  attn_fit fit_ = ATTN_FIT_EXACT;
  Shape shape_;
  detail::Shared<attn_executable, attn_executable_retain, attn_executable_release> forward_;
  detail::Shared<attn_executable, attn_executable_retain, attn_executable_release> backward_;
};

// The plans of one spec for several sizes. For any number of threads at once, except destruction.
class Picker {
 public:
  Picker() = default;
  // Makes a picker from a plan file; plans are loaded when first picked. Errors: those of
  // attn_picker_load_file.
  static Result<Picker> load_file(const Runtime& runtime, const std::string& path,
                                  const PickerOptions& options = {}) {
    const PlainOptions plain(options);
    return detail::make<Picker, attn_picker>(attn_picker_load_file, runtime.handle(), path.c_str(),
                                             plain.get());
  }
  // `file` holds the contents of a plan file.
  static Result<Picker> load_memory(const Runtime& runtime, std::string_view file,
                                    const PickerOptions& options = {}) {
    const PlainOptions plain(options);
    const void* bytes = file.data();
    return detail::make<Picker, attn_picker>(attn_picker_load_memory, runtime.handle(), bytes,
                                             file.size(), plain.get());
  }
  // Makes a picker without plans, which `options.attnc` builds. Errors: invalid_argument.
  static Result<Picker> create(const Runtime& runtime, const Spec& spec,
                               const PickerOptions& options) {
    const PlainOptions plain(options);
    std::vector<attn_spec_binding> bindings;
    for (const auto& [name, value] : spec.bindings) {
      bindings.push_back({name.c_str(), value.c_str()});
    }
    attn_spec plain_spec = {};
    plain_spec.size = sizeof plain_spec;
    plain_spec.text = spec.text.c_str();
    plain_spec.bindings = bindings.data();
    plain_spec.binding_count = bindings.size();
    plain_spec.binding_bytes = sizeof(attn_spec_binding);
    return detail::make<Picker, attn_picker>(attn_picker_create, runtime.handle(), &plain_spec,
                                             plain.get());
  }

  // Picks the plan for these sizes, as attn_picker_pick: exactly theirs, else the smallest that
  // contains them, else a built one. Errors: plan_shape, plan_pending, those of building or
  // loading.
  Result<Picked> pick(const std::vector<Size>& sizes, const Policy& policy = {}) const {
    std::vector<attn_dim_size> plain;
    plain.reserve(sizes.size());
    for (const Size& size : sizes) plain.push_back({static_cast<attn_dim>(size.dim), 0, size.size});
    attn_pick_policy plain_policy = {};
    plain_policy.size = sizeof plain_policy;
    plain_policy.build = static_cast<attn_build>(policy.build);
    plain_policy.exact_only = policy.buckets ? 0 : 1;
    plain_policy.retry = policy.retry ? 1 : 0;
    plain_policy.dim_size_bytes = sizeof(attn_dim_size);
    attn_picked picked = {};
    picked.size = sizeof picked;
    ATTN_TRY(detail::Caller()(attn_picker_pick, handle(), plain.data(), plain.size(), &plain_policy,
                              &picked));
    return Picked(picked);
  }

  // The shapes that have plans, built ones included.
  Result<std::vector<Shape>> shapes() const {
    std::vector<attn_shape> plain;
    std::size_t count = 0;
    do {  // a shape may be added between two calls
      plain.resize(count);
      ATTN_TRY(detail::Caller()(attn_picker_list, handle(), plain.data(), sizeof(attn_shape),
                                plain.size(), &count));
    } while (count > plain.size());
    plain.resize(count);
    return std::vector<Shape>(plain.begin(), plain.end());
  }

  attn_picker* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }
  explicit Picker(attn_picker* handle) : handle_(handle) {}  // owns it

 private:
  // The options of attn.h; points into the options, which must outlive it.
  class PlainOptions {
   public:
    explicit PlainOptions(const PickerOptions& options) {
      for (const std::string& each : options.arguments) arguments_.push_back(each.c_str());
      plain_.size = sizeof plain_;
      if (!options.attnc.empty()) plain_.attnc = options.attnc.c_str();
      if (!options.target.empty()) plain_.target = options.target.c_str();
      plain_.arguments = arguments_.data();
      plain_.argument_count = arguments_.size();
      plain_.most_built = options.most_built;
      plain_.timeout_seconds = options.timeout_seconds;
      detail::set_trust(plain_, options);
    }
    const attn_picker_options* get() const { return &plain_; }

   private:
    std::vector<const char*> arguments_;
    attn_picker_options plain_ = {};
  };

  detail::Owned<attn_picker, attn_picker_destroy> handle_;
};

// Device memory: a convenience, see attn.h. For one thread at a time.
class Memory {
 public:
  Memory() = default;
  // Allocates device memory, aligned to 256 bytes and uninitialized. Errors: cuda.
  static Result<Memory> allocate(const Runtime& runtime, std::size_t bytes) {
    return detail::make<Memory, attn_memory>(attn_memory_allocate, runtime.handle(), bytes);
  }
  // The device address, as long as this object lives; null if it is empty.
  void* data() const { return attn_memory_data(handle_.get()); }
  // Copies host memory to the device memory from byte `offset` on, without waiting for other
  // streams. Errors: invalid_argument if out of range, cuda.
  Status upload(const void* source, std::size_t bytes, std::size_t offset = 0) {
    return detail::Caller()(attn_memory_upload, handle_.get(), offset, source, bytes);
  }
  // The same from the device to the host.
  Status download(void* target, std::size_t bytes, std::size_t offset = 0) const {
    return detail::Caller()(attn_memory_download, handle_.get(), offset, target, bytes);
  }
  explicit operator bool() const { return handle_ != nullptr; }
  explicit Memory(attn_memory* handle) : handle_(handle) {}  // owns it

 private:
  detail::Owned<attn_memory, attn_memory_free> handle_;
};

// A stream that does not synchronize with the default stream. For one thread at a time.
class Stream {
 public:
  Stream() = default;
  // Creates a stream on the runtime's device. Errors: cuda.
  static Result<Stream> create(const Runtime& runtime) {
    return detail::make<Stream, attn_stream>(attn_stream_create, runtime.handle());
  }
  void* handle() const { return attn_stream_handle(handle_.get()); }  // CUstream
  // Waits for all work on the stream. Errors: cuda.
  Status synchronize() const { return detail::Caller()(attn_stream_synchronize, handle_.get()); }
  explicit operator bool() const { return handle_ != nullptr; }
  explicit Stream(attn_stream* handle) : handle_(handle) {}  // owns it

 private:
  detail::Owned<attn_stream, attn_stream_destroy> handle_;
};

// Converts `count` host elements from f32, rounding floats to nearest even. Errors:
// invalid_argument for a dtype or value that cannot be converted.
inline Status from_f32(DType dtype, const float* values, std::size_t count, void* elements) {
  const auto plain = static_cast<attn_dtype>(dtype);
  return detail::Caller()(attn_elements_from_f32, plain, values, count, elements);
}
// The same from elements to f32.
inline Status to_f32(DType dtype, const void* elements, std::size_t count, float* values) {
  const auto plain = static_cast<attn_dtype>(dtype);
  return detail::Caller()(attn_elements_to_f32, plain, elements, count, values);
}

}  // namespace v2
}  // namespace attn

// May be used more than once per line.
#undef ATTN_TRY_ASSIGN
#define ATTN_TRY_ASSIGN(target, expression) ATTN_TRY_ASSIGN_1_(target, expression, __COUNTER__)

#endif
