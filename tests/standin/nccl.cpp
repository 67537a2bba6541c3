// NCCL for ranks that are threads of one process, whose memory is that of the stand-in driver.
#include <dlfcn.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/standin/recorder.h"
#include "tests/standin/registry.h"

namespace attn::standin {
namespace {

enum Result {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kInvalidArgument = 4,
  kRemoteError = 6,
  kInProgress = 7
};

// Memory that a rank sends, until it is received.
struct Letter {
  const void* data;
  std::size_t bytes;
  std::shared_ptr<int> not_received;  // letters of the same batch
};

struct Group {
  int ranks = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<Letter>> mail;  // by sender and receiver
};

struct Comm {
  std::shared_ptr<Group> group;
  int rank = 0;
  std::atomic<int> device{0};
  std::atomic<int> polls{0}, state{kSuccess};
  std::atomic<int> aborts{0};

  bool is_aborted() const { return aborts.load() > 0; }
};

Registry<Comm>& comms() {
  static auto& all = *new Registry<Comm>(0x61);
  return all;
}

std::mutex words_mutex;
std::string words;  // of the last error

struct Operation {
  bool sends;
  int peer;
  const void* from;
  void* to;
  std::size_t bytes;
};

// What a call, or a group of calls, does on one communicator.
struct Batch {
  Comm* comm = nullptr;
  void* stream = nullptr;
  std::vector<Operation> operations;
  std::function<void()> after;
  int result = kSuccess;

  void run() {
    Group& group = *comm->group;
    std::unique_lock lock(group.mutex);
    const auto not_received = std::make_shared<int>(0);
    for (const Operation& each : operations) {
      if (!each.sends) continue;
      ++*not_received;
      group.mail[{comm->rank, each.peer}].push_back({each.from, each.bytes, not_received});
    }
    group.changed.notify_all();
    const auto wait_until = [&](const auto& condition) {
      group.changed.wait(lock, [&] { return comm->is_aborted() || condition(); });
      return !comm->is_aborted();
    };
    result = kRemoteError;
    for (const Operation& each : operations) {
      if (each.sends) continue;
      auto& letters = group.mail[{each.peer, comm->rank}];
      if (!wait_until([&] { return !letters.empty(); })) return;
      receive(each, letters.front());
      letters.pop_front();
      group.changed.notify_all();
    }
    if (!wait_until([&] { return *not_received == 0; })) return;
    if (after) after();
    result = kSuccess;
  }

  static void receive(const Operation& operation, const Letter& letter) {
    if (letter.bytes != operation.bytes) {
      violate("ncclRecv", "as many bytes as are not sent");
    } else {
      std::memcpy(operation.to, letter.data, letter.bytes);
    }
    --*letter.not_received;
  }
};

// The driver's stand-in, if it is loaded.
const StandinCuda* driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  const auto function = reinterpret_cast<StandinCudaFunction>(dlsym(library, "standin_cuda"));
  return function == nullptr ? nullptr : function();
}

int enqueue(const std::shared_ptr<Batch>& batch) {
  const StandinCuda* cuda = driver();
  if (cuda == nullptr) {
    batch->run();
  } else {
    using Owner = std::shared_ptr<Batch>;
    const int failed = cuda->enqueue(
        batch->stream, "nccl", [](void* data) { (*static_cast<Owner*>(data))->run(); },
        [](void* data) { delete static_cast<Owner*>(data); }, new Owner(batch));
    if (failed != 0) return kUnhandledCudaError;
  }
  if (batch->result != kSuccess) return batch->result;
  return batch->comm->polls > 0 ? kInProgress : kSuccess;
}

// The group of this thread's calls.
struct Calls {
  int depth = 0;
  int error = kSuccess;
  std::vector<std::shared_ptr<Batch>> batches;  // one for each communicator
};
thread_local Calls calls;

int add(Comm* comm, void* stream, std::vector<Operation> operations, std::function<void()> after) {
  for (const auto& batch : calls.batches) {
    if (batch->comm != comm || batch->stream != stream) continue;
    batch->operations.insert(batch->operations.end(), operations.begin(), operations.end());
    return kSuccess;
  }
  const auto batch = std::make_shared<Batch>();
  batch->comm = comm;
  batch->stream = stream;
  batch->operations = std::move(operations);
  batch->after = std::move(after);
  if (calls.depth == 0) return enqueue(batch);
  calls.batches.push_back(batch);
  return kSuccess;
}

// A scripted failure, which a group keeps.
int failed(const Verdict& verdict) {
  if (calls.depth > 0) calls.error = verdict.status;
  const std::lock_guard lock(words_mutex);
  words = verdict.words;
  return verdict.status;
}

Comm* used(const char* function, void* handle) {
  Comm* comm = comms().find(handle);
  if (comm == nullptr) violate(function, "no such communicator");
  if (comm == nullptr || !comm->is_aborted()) return comm;
  violate(function, "an aborted communicator");
  return nullptr;
}

std::size_t size_of_type(int type) { return type == 7 ? sizeof(float) : 1; }

void make(int ranks, void** handles) {
  const auto group = std::make_shared<Group>();
  group->ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    auto comm = std::make_unique<Comm>();
    comm->group = group;
    comm->rank = rank;
    handles[rank] = comms().add(std::move(comm));
  }
}

void reset() {
  const std::lock_guard lock(words_mutex);
  words.clear();
}

}  // namespace
}  // namespace attn::standin

using namespace attn::standin;

ATTN_STANDIN_EXPORT const StandinNccl* standin_nccl() {
  static const StandinNccl table = {
      make_control(&reset, [](const char*) { return comms().size(); }),
      &make,
      [](void* handle) { comms().remove(handle); },
      [](void* handle, int device) { comms().find(handle)->device = device; },
      [](void* handle, int polls, int result) {
        comms().find(handle)->state = result;
        comms().find(handle)->polls = polls;
      },
      [](const void* handle) { return comms().find(handle)->aborts.load(); }};
  return &table;
}

// At the start of a function: counts the call and applies the script.
#define ATTN_STANDIN_NCCL(name, care)                                        \
  static Site site(#name, Care::care);                                       \
  if (const Verdict verdict = recorder().enter(site); verdict.status != 0) { \
    return failed(verdict);                                                  \
  }
#define ATTN_STANDIN_COMM(name, care)     \
  ATTN_STANDIN_NCCL(name, care)           \
  Comm* const comm = used(#name, handle); \
  if (comm == nullptr) return kInvalidArgument;

ATTN_STANDIN_EXPORT int ncclGetVersion(int* version) {
  *version = 22800;
  return kSuccess;
}

ATTN_STANDIN_EXPORT const char* ncclGetErrorString(int result) {
  switch (result) {
    case kSuccess: return "no error";
    case kUnhandledCudaError: return "unhandled cuda error";
    case kInvalidArgument: return "invalid argument";
    case kRemoteError: return "remote process exited or there was a network error";
    default: return "scripted error";
  }
}

ATTN_STANDIN_EXPORT const char* ncclGetLastError(void*) {
  thread_local std::string copy;
  const std::lock_guard lock(words_mutex);
  copy = words;
  return copy.c_str();
}

ATTN_STANDIN_EXPORT int ncclCommCount(void* handle, int* count) {
  ATTN_STANDIN_COMM(ncclCommCount, checked)
  *count = comm->group->ranks;
  return kSuccess;
}

ATTN_STANDIN_EXPORT int ncclCommUserRank(void* handle, int* rank) {
  ATTN_STANDIN_COMM(ncclCommUserRank, checked)
  *rank = comm->rank;
  return kSuccess;
}

ATTN_STANDIN_EXPORT int ncclCommCuDevice(void* handle, int* device) {
  ATTN_STANDIN_COMM(ncclCommCuDevice, checked)
  *device = comm->device;
  return kSuccess;
}

ATTN_STANDIN_EXPORT int ncclCommGetAsyncError(void* handle, int* result) {
  ATTN_STANDIN_COMM(ncclCommGetAsyncError, checked)
  *result =
      comm->polls > 0 && comm->polls-- > 0 ? static_cast<int>(kInProgress) : comm->state.load();
  return kSuccess;
}

// What it sent and is not received goes.
ATTN_STANDIN_EXPORT int ncclCommAbort(void* handle) {
  ATTN_STANDIN_NCCL(ncclCommAbort, ignored)
  Comm* comm = comms().find(handle);
  if (comm == nullptr) return kInvalidArgument;
  if (comm->aborts > 0) violate("ncclCommAbort", "an aborted communicator");
  const std::lock_guard lock(comm->group->mutex);
  ++comm->aborts;
  for (auto& [way, letters] : comm->group->mail) {
    if (way.first == comm->rank) letters.clear();
  }
  comm->group->changed.notify_all();
  return kSuccess;
}

ATTN_STANDIN_EXPORT int ncclGroupStart() {
  ATTN_STANDIN_NCCL(ncclGroupStart, checked)
  ++calls.depth;
  return kSuccess;
}

ATTN_STANDIN_EXPORT int ncclGroupEnd() {
  if (calls.depth == 0) {
    violate("ncclGroupEnd", "no group");
    return kInvalidArgument;
  }
  if (--calls.depth > 0) return kSuccess;
  const auto batches = std::exchange(calls.batches, {});
  int result = std::exchange(calls.error, kSuccess);
  ATTN_STANDIN_NCCL(ncclGroupEnd, checked)
  if (result != kSuccess) return result;
  for (const auto& batch : batches) {
    const int each = enqueue(batch);
    if (each != kSuccess) result = each;
  }
  return result;
}

ATTN_STANDIN_EXPORT int ncclSend(const void* from, std::size_t count, int type, int peer,
                                 void* handle, void* stream) {
  ATTN_STANDIN_COMM(ncclSend, checked)
  return add(comm, stream, {{true, peer, from, nullptr, count * size_of_type(type)}}, nullptr);
}

ATTN_STANDIN_EXPORT int ncclRecv(void* to, std::size_t count, int type, int peer, void* handle,
                                 void* stream) {
  ATTN_STANDIN_COMM(ncclRecv, checked)
  return add(comm, stream, {{false, peer, nullptr, to, count * size_of_type(type)}}, nullptr);
}

ATTN_STANDIN_EXPORT int ncclAllGather(const void* from, void* to, std::size_t count, int type,
                                      void* handle, void* stream) {
  ATTN_STANDIN_COMM(ncclAllGather, checked)
  const std::size_t bytes = count * size_of_type(type);
  std::vector<Operation> operations;
  for (int peer = 0; peer < comm->group->ranks; ++peer) {
    operations.push_back({true, peer, from, nullptr, bytes});
    operations.push_back({false, peer, nullptr,
                          static_cast<std::byte*>(to) + bytes * static_cast<std::size_t>(peer),
                          bytes});
  }
  return add(comm, stream, std::move(operations), nullptr);
}

// Sums of floats only.
ATTN_STANDIN_EXPORT int ncclAllReduce(const void* from, void* to, std::size_t count, int type,
                                      int operation, void* handle, void* stream) {
  ATTN_STANDIN_COMM(ncclAllReduce, checked)
  if (type != 7 || operation != 0) return kInvalidArgument;
  const auto ranks = static_cast<std::size_t>(comm->group->ranks);
  const auto parts = std::make_shared<std::vector<float>>(count * ranks);
  std::vector<Operation> operations;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    const std::size_t bytes = count * sizeof(float);
    operations.push_back({true, static_cast<int>(peer), from, nullptr, bytes});
    operations.push_back(
        {false, static_cast<int>(peer), nullptr, parts->data() + count * peer, bytes});
  }
  return add(comm, stream, std::move(operations), [=] {
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (std::size_t peer = 0; peer < ranks; ++peer) sum += (*parts)[count * peer + i];
      static_cast<float*>(to)[i] = sum;
    }
  });
}
