// C++17 wrapper of the distributed part of attn.h: one attention on several GPUs, with a process
// (or thread) for each, and a communicator of NCCL that the application makes.
//
//   attn::Status run(ncclComm_t communicator, void* stream) {
//     ATTN_TRY_ASSIGN(auto runtime, attn::Runtime::open());
//     attn::DistributedOptions options;
//     options.communicator = communicator;
//     ATTN_TRY_ASSIGN(auto attention,
//                     attn::Distributed::open_file(runtime, "causal.attnplan", options));
//     attn::Arguments arguments;  // tensors of attention.tensors(): this rank's rows and keys
//     ..
//     ATTN_TRY_ASSIGN(auto binding, attention.bind(attn::Direction::forward, arguments));
//     ATTN_TRY(binding.execute(stream));
//     .. wait for the stream ..
//     return attention.status();  // whether the outputs are valid
//   }
//
// attn.h documents semantics, errors and thread-safety; handles behave as in attn.hpp.
#ifndef ATTN_DISTRIBUTED_HPP
#define ATTN_DISTRIBUTED_HPP

#include "attn.hpp"

namespace attn {
inline namespace v2 {

// The numbers begin .. end - 1.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Options of Distributed; attn_distributed_options says more.
struct DistributedOptions {
  void* communicator = nullptr;          // ncclComm_t; the caller keeps it until the object is gone
  std::string nccl_folder = {};          // empty: the loaded copy, $ATTN_NCCL_DIR or default paths
  int timeout_seconds = 0;               // from the first exchange of an execute to its last; 0: 30
  bool forward = true, backward = true;  // directions to load, if the file has them
  // Ends all communication; empty: ncclCommAbort(communicator), after which the caller must not use
  // or destroy it. Called once at most, from a thread of the library or one that opens or executes.
  // Must not throw.
  std::function<void()> abort = {};
  std::optional<std::string> sha256 = {};  // of the file, 64 hexadecimal digits
  Verify verify = {};
  // Why ranks wait in vain, as far as the application knows: exchanges are then given up before the
  // time. Asked about every second while one takes longer than that, from a thread of the library
  // or one that opens. Must not throw nor call CUDA.
  std::function<std::optional<std::string>()> lost = {};
};

// This rank's tensors of one direction. For one thread at a time, together with all others of the
// same object.
class DistributedBinding {
 public:
  DistributedBinding() = default;
  // Like Binding::set_param; the values of all ranks must be the same.
  Status set_param(const std::string& name, double value) {
    return call_(attn_distributed_binding_set_param, handle(), name.c_str(), value);
  }
  // As Binding::set_addresses, in the order of Distributed::tensors(). Values that are compared are
  // read behind what `stream` was given; while it is captured, they must have been compared before.
  // Errors: binding, cuda.
  Status set_addresses(const std::vector<void*>& addresses, Check check = Check::addresses,
                       void* stream = nullptr) {
    return call_(attn_distributed_binding_set_addresses, handle(), addresses.data(),
                 addresses.size(), static_cast<attn_check>(check), stream);
  }
  // Collective: enqueues on a stream, and returns without waiting. Errors: cuda, cudnn, nccl, and
  // those of Distributed::status().
  Status execute(void* stream) { return call_(attn_distributed_execute, handle(), stream); }

  attn_distributed_binding* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }
  explicit DistributedBinding(attn_distributed_binding* handle) : handle_(handle) {}  // owns it

 private:
  detail::Caller call_;
  detail::Owned<attn_distributed_binding, attn_distributed_binding_destroy> handle_;
};

// One rank. For one thread at a time. Bindings must be destroyed before it.
class Distributed {
 public:
  Distributed() = default;
  Distributed(Distributed&&) = default;
  Distributed& operator=(Distributed&& other) noexcept {
    handle_ = std::move(other.handle_);  // before the function that it may call
    abort_ = std::move(other.abort_);
    return *this;
  }
  // Collective: loads this rank's plans, and fails on all ranks if one fails. Errors: those of
  // attn_distributed_open_file.
  static Result<Distributed> open_file(const Runtime& runtime, const std::string& path,
                                       DistributedOptions options) {
    return open(std::move(options), [&](const attn_distributed_options& plain, Distributed& made,
                                        attn_distributed** handle) {
      return made.call_(attn_distributed_open_file, runtime.handle(), path.c_str(), &plain, handle);
    });
  }
  // `file` holds the contents of a plan file.
  static Result<Distributed> open_memory(const Runtime& runtime, std::string_view file,
                                         DistributedOptions options) {
    const void* bytes = file.data();
    return open(std::move(options), [&](const attn_distributed_options& plain, Distributed& made,
                                        attn_distributed** handle) {
      return made.call_(attn_distributed_open_memory, runtime.handle(), bytes, file.size(), &plain,
                        handle);
    });
  }

  // What attn_distributed_info says.
  std::string name() const { return text(info().name); }
  std::string family() const { return text(info().family); }
  std::string sharding() const { return text(info().sharding); }
  int rank() const { return info().rank; }
  int ranks() const { return info().ranks; }
  std::int64_t device_bytes() const { return info().device_bytes; }
  // Whether the file has plans of the direction.
  bool has(Direction direction) const {
    return (info().directions >> static_cast<std::int32_t>(direction) & 1) != 0;
  }
  // Rows and keys that are at home on this rank, or on any other.
  std::vector<Interval> rows() const { return home(rank(), 0); }
  std::vector<Interval> keys() const { return home(rank(), 1); }
  std::vector<Interval> rows(int rank) const { return home(rank, 0); }
  std::vector<Interval> keys(int rank) const { return home(rank, 1); }

  // Tensors to bind; none of a direction that it does not have.
  Result<std::vector<TensorInfo>> tensors(Direction direction) const {
    const auto plain = static_cast<attn_direction>(direction);
    return detail::read_list<attn_tensor_info>(detail::tensor_info,
                                               attn_distributed_tensor_count(handle(), plain),
                                               attn_distributed_tensor, handle(), plain);
  }
  // Params to bind; none of a direction that it does not have.
  Result<std::vector<ParamInfo>> params(Direction direction) const {
    const auto plain = static_cast<attn_direction>(direction);
    return detail::read_list<attn_param_info>(detail::param_info,
                                              attn_distributed_param_count(handle(), plain),
                                              attn_distributed_param, handle(), plain);
  }

  // Binds this rank's tensors. `stream`: that of the executes, needed if it is being captured. Not
  // collective. Errors: binding, cuda, cudnn.
  Result<DistributedBinding> bind(Direction direction, const Arguments& arguments,
                                  void* stream = nullptr) const {
    if (arguments.error()) return *arguments.error();
    attn_bind_options options = {};
    options.size = sizeof options;
    options.stream = stream;
    return detail::make<DistributedBinding, attn_distributed_binding>(
        attn_distributed_binding_create, handle(), static_cast<attn_direction>(direction),
        static_cast<const attn_arguments*>(arguments.handle()),
        static_cast<const attn_bind_options*>(&options));
  }

  // Whether all exchanges until now went well: after synchronizing with the stream, whether outputs
  // are valid. Errors: nccl; the object can then only be destroyed.
  Status status() const { return call_(attn_distributed_status, handle()); }
  // Gives up what ranks exchange, with `why` as the error of later calls. Not collective.
  Status abort(const std::string& why) const {
    return call_(attn_distributed_abort, handle(), why.c_str());
  }

  attn_distributed* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }

 private:
  using Lost = std::function<std::optional<std::string>()>;
  template <typename Call>
  static Result<Distributed> open(DistributedOptions options, const Call& call) {
    Distributed made;
    attn_distributed_options plain = {};
    plain.size = sizeof plain;
    plain.communicator = options.communicator;
    if (!options.nccl_folder.empty()) plain.nccl_folder = options.nccl_folder.c_str();
    plain.timeout_seconds = options.timeout_seconds;
    plain.directions = (options.forward ? 1 : 0) | (options.backward ? 2 : 0);
    detail::set_trust(plain, options);
    if (options.abort) {
      made.abort_ = std::make_unique<std::function<void()>>(options.abort);
      plain.abort = [](void* abort) { (*static_cast<std::function<void()>*>(abort))(); };
      plain.abort_user = made.abort_.get();
    }
    if (options.lost) {
      made.lost_ = std::make_unique<Lost>(options.lost);
      plain.lost = [](void* lost, char* why, std::size_t capacity) -> std::int32_t {
        const std::optional<std::string> text = (*static_cast<Lost*>(lost))();
        if (text) why[text->copy(why, capacity - 1)] = '\0';
        return text ? 1 : 0;
      };
      plain.lost_user = made.lost_.get();
    }
    attn_distributed* handle = nullptr;
    ATTN_TRY(call(plain, made, &handle));
    made.handle_.reset(handle);
    return made;
  }

  static std::string text(const char* text) { return text == nullptr ? "" : text; }

  attn_distributed_info info() const {
    attn_distributed_info info = {};
    info.size = sizeof info;
    if (!call_(attn_distributed_describe, handle(), &info).ok()) return {};
    return info;
  }

  std::vector<Interval> home(int rank, std::int32_t which) const {
    std::vector<attn_interval> plain;
    std::size_t count = 0;
    do {
      plain.resize(count);
      const Status status =
          call_(attn_distributed_home, handle(), rank, which, plain.data(), plain.size(), &count);
      if (!status.ok()) return {};
    } while (count > plain.size());
    std::vector<Interval> home;
    for (const attn_interval& each : plain) home.push_back({each.begin, each.end});
    return home;
  }

  detail::Caller call_;
  // They outlive the handle.
  std::unique_ptr<std::function<void()>> abort_;
  std::unique_ptr<Lost> lost_;
  detail::Owned<attn_distributed, attn_distributed_destroy> handle_;
};

}  // namespace v2
}  // namespace attn

#endif  // ATTN_DISTRIBUTED_HPP
