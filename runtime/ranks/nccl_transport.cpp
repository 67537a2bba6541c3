#include "runtime/ranks/nccl_transport.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/ranks/deadline.h"
#include "runtime/ranks/seconds.h"

namespace attn::ranks {
namespace {

using Clock = std::chrono::steady_clock;

// Limit of calls that do not wait for other ranks: they take far less.
constexpr std::chrono::milliseconds kMoment{200};

constexpr const char* kHow =
    "each rank must open the same file and execute the same directions in the same order";

Error aborted() {
  return {ErrorCode::nccl, "the communicator was aborted", {"destroy this object"}};
}

void pause() { std::this_thread::sleep_for(std::chrono::microseconds(100)); }

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A communicator may serve several attentions: when one aborts it, none may use it any more.
std::shared_ptr<Gate> gate_of(void* communicator) {
  static std::mutex mutex;
  static std::map<void*, std::weak_ptr<Gate>> gates;
  const std::lock_guard lock(mutex);
  std::erase_if(gates, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<Gate>& known = gates[communicator];
  std::shared_ptr<Gate> gate = known.lock();
  // A closed gate is that of a communicator that was at the same address.
  if (gate == nullptr || gate->is_closed()) known = gate = std::make_shared<Gate>();
  return gate;
}

}  // namespace

NcclTransport::NcclTransport(std::shared_ptr<const Nccl> nccl, const cuda::Device& device,
                             NcclOptions options, cuda::Stream stream, cuda::Event event)
    : nccl_(std::move(nccl)),
      device_(device),
      options_(std::move(options)),
      stream_(std::move(stream)),
      event_(std::move(event)),
      gate_(gate_of(options_.communicator)) {}

Result<std::unique_ptr<NcclTransport>> NcclTransport::create(std::shared_ptr<const Nccl> nccl,
                                                             const cuda::Device& device,
                                                             NcclOptions options) {
  if (options.communicator == nullptr) {
    return {ErrorCode::invalid_argument, "there is no communicator"};
  }
  ATTN_ASSIGN(cuda::Stream stream, cuda::Stream::create(device));
  ATTN_ASSIGN(cuda::Event event, cuda::Event::create(device));
  std::unique_ptr<NcclTransport> transport(new NcclTransport(
      std::move(nccl), device, std::move(options), std::move(stream), std::move(event)));
  ATTN_RETURN_IF_ERROR(transport->describe());
  return transport;
}

Status NcclTransport::describe() {
  void* const comm = options_.communicator;
  const NcclApi& api = nccl_->api();
  ATTN_RETURN_IF_ERROR(wait_ready("making the communicator"));
  int device = 0;
  const auto ask = [&](auto function, int& value, std::string_view what) {
    return call(what, [&] { return function(comm, &value); });
  };
  ATTN_RETURN_IF_ERROR(ask(api.comm_count, ranks_, "asking for the communicator's size"));
  ATTN_RETURN_IF_ERROR(ask(api.comm_rank, rank_, "asking for the communicator's rank"));
  ATTN_RETURN_IF_ERROR(ask(api.comm_device, device, "asking for the communicator's device"));
  if (options_.ranks != 0 && ranks_ != options_.ranks) {
    return {ErrorCode::invalid_argument,
            fmt::format("the file is for {} ranks, but the communicator has {}", options_.ranks,
                        ranks_)};
  }
  if (device != device_.ordinal()) {
    return {ErrorCode::invalid_argument,
            fmt::format("the communicator is for CUDA device {}, but the runtime for {}", device,
                        device_.ordinal())};
  }
  return {};
}

template <typename Function>
Status NcclTransport::call(std::string_view action, const Function& function) const {
  if (!gate_->enter()) return aborted();
  Status status = nccl_->check(function(), action);
  gate_->leave();
  return status;
}

// A call that enqueues work. A non-blocking communicator may enqueue it later, in a thread of its
// own; the stream must not get more work until then.
template <typename Function>
Status NcclTransport::enqueue(std::string_view action, const Function& function) {
  int result = kNcclSuccess;
  ATTN_RETURN_IF_ERROR(call(action, [&] { return result = function(); }));
  return result == kNcclInProgress ? wait_ready(action) : Status();
}

Status NcclTransport::wait_ready(std::string_view action) const {
  const Clock::time_point last = Clock::now() + options_.timeout;
  while (true) {
    int state = kNcclSuccess;
    ATTN_RETURN_IF_ERROR(call(
        action, [&] { return nccl_->api().comm_get_async_error(options_.communicator, &state); }));
    if (state != kNcclInProgress) return call(action, [&] { return state; });
    if (Clock::now() >= last) {
      return Error{ErrorCode::nccl,
                   fmt::format("NCCL: {}: not done within {}", action, seconds(options_.timeout)),
                   {kHow}};
    }
    pause();
  }
}

Status NcclTransport::exchange(std::span<const Piece> sends, std::span<const Piece> receives,
                               void* stream) {
  void* const comm = options_.communicator;
  const NcclApi& api = nccl_->api();
  return enqueue("exchanging with other ranks", [&] {
    int failed = api.group_start();
    if (failed != kNcclSuccess) return failed;
    const auto note = [&](int result) {
      if (failed == kNcclSuccess && result != kNcclInProgress) failed = result;
    };
    for (const Piece& piece : sends) {
      note(api.send(piece.data, piece.bytes, kNcclUint8, piece.peer, comm, stream));
    }
    for (const Piece& piece : receives) {
      note(api.receive(piece.data, piece.bytes, kNcclUint8, piece.peer, comm, stream));
    }
    const int ended = api.group_end();
    return failed != kNcclSuccess ? failed : ended;
  });
}

Status NcclTransport::all_reduce(float* values, std::size_t count, void* stream) {
  return enqueue("adding up the ranks' sums", [&] {
    return nccl_->api().all_reduce(values, values, count, kNcclFloat32, kNcclSum,
                                   options_.communicator, stream);
  });
}

Result<std::vector<std::string>> NcclTransport::all_gather(std::string_view bytes,
                                                           int timeout_seconds) {
  const std::chrono::seconds timeout(timeout_seconds);
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device_));
  const std::size_t total = bytes.size() * static_cast<std::size_t>(ranks_);
  ATTN_ASSIGN(cuda::DeviceBuffer own, cuda::DeviceBuffer::allocate(device_, bytes.size()));
  ATTN_ASSIGN(cuda::DeviceBuffer all, cuda::DeviceBuffer::allocate(device_, total));
  ATTN_RETURN_IF_ERROR(own.upload(bytes_of(bytes)));
  Lost lost(options_.lost);
  Status in_vain;  // of the deadline's thread until it has passed
  Deadline deadline(
      timeout, [this] { abort(); },
      [&, since = Clock::now()] { return !(in_vain = lost.check(since)).ok(); });
  const Status gathered = gather(own, all);
  if (!gathered.ok()) abort();  // ends what is enqueued, else freeing the memory would wait for it
  if (!gathered.ok() && deadline.passed()) {
    ATTN_RETURN_IF_ERROR(in_vain);
    return Error{ErrorCode::nccl,
                 fmt::format("not all of the {} ranks answer within {}", ranks_, seconds(timeout)),
                 {kHow}};
  }
  ATTN_RETURN_IF_ERROR(gathered);
  std::string text(total, '\0');
  ATTN_RETURN_IF_ERROR(all.download(std::as_writable_bytes(std::span(text.data(), text.size()))));
  std::vector<std::string> each;
  for (std::size_t at = 0; at < total; at += bytes.size()) {
    each.push_back(text.substr(at, bytes.size()));
  }
  return each;
}

Status NcclTransport::gather(const cuda::DeviceBuffer& own, const cuda::DeviceBuffer& all) {
  ATTN_RETURN_IF_ERROR(enqueue("gathering what ranks say", [&] {
    return nccl_->api().all_gather(own.data(), all.data(), own.size(), kNcclUint8,
                                   options_.communicator, stream_.handle());
  }));
  ATTN_RETURN_IF_ERROR(event_.record(stream_.handle()));
  return wait_for_event();
}

Status NcclTransport::wait_for_event() const {
  while (true) {
    ATTN_ASSIGN(const bool reached, event_.reached());
    if (gate_->is_closed()) return aborted();
    if (reached) return {};
    ATTN_RETURN_IF_ERROR(failed());
    pause();
  }
}

Status NcclTransport::failed() const {
  constexpr std::string_view kAction = "communicating with other ranks";
  int state = kNcclSuccess;
  ATTN_RETURN_IF_ERROR(call(
      kAction, [&] { return nccl_->api().comm_get_async_error(options_.communicator, &state); }));
  return call(kAction, [&] { return state; });
}

void NcclTransport::abort() {
  if (!gate_->close(kMoment)) return;
  if (options_.abort) {
    options_.abort();
  } else {
    nccl_->api().comm_abort(options_.communicator);
  }
}

}  // namespace attn::ranks
