// Internals of the stand-in CUDA driver.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/standin/cubin.h"
#include "tests/standin/recorder.h"
#include "tests/standin/registry.h"
#include "tests/standin/work.h"

namespace attn::standin {

inline constexpr int kMostDevices = 8;

// A device and its primary context. Its address is the context handle.
struct Device {
  std::atomic<int> sm{90};
  std::atomic<int> retained{0};
  std::atomic<std::int64_t> bytes_used{0};
};
std::array<Device, kMostDevices>& devices();
int ordinal_of(const void* context);  // -1 if it is not a context

// The device of this thread's context; -1 if there is none or it was destroyed.
int current_device();
// CUDA_SUCCESS, or the error that calls on this thread get.
CUresult check_context();

// Writes into the log which stream the call that is recorded is of, and what it does there.
void log_work(CUstream stream, const std::string& what);
std::string number_of(const void* handle);

// A kernel or another operation of a stream.
struct Node {
  std::string what;
  std::function<void()> work;
};

// Memory that a graph allocates during capture; freed with its last owner.
struct GraphMemory {
  explicit GraphMemory(CUdeviceptr its_address) : address(its_address) {}
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  CUdeviceptr address;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<std::shared_ptr<GraphMemory>> memory;
};

struct GraphExec {
  Graph graph;
  std::atomic<bool> busy{false};
};

struct Stream {
  int device = 0;
  bool blocks = false;                   // waits for the default stream
  std::atomic<bool> is_captured{false};  // as `captured`, for other threads
  std::atomic<bool> is_spoilt{false};    // its capture is lost
  std::optional<Graph> captured;         // set during a capture that began on it
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  long refusals = 0;               // of its thread, when the capture began
  std::vector<CUstream> joined{};  // streams that are captured with it, because they waited for it
  CUstream origin = nullptr;       // of such a stream, that with which it is captured
  long nodes = 0, awaited = 0;     // of such a stream, how many nodes it has, and others wait for
};

struct Event {
  int device = 0;
  CUstream captured_on = nullptr;  // if it was recorded during a capture
  long node = 0;                   // how many nodes the stream had then
};

struct Kernel {
  std::string name;
  Work work;
  std::vector<std::size_t> parameters;  // size of each in bytes
  unsigned shared_bytes = 48 << 10;     // dynamic shared memory that a launch may take
};
struct Module {
  int device = 0;
  bool is_real = false;  // a cubin or PTX, whose kernels do nothing
  Kernels works;
  Parameters parameters;       // of the kernels of a real image
  std::vector<void*> kernels;  // kernels looked up so far; entries of kernels()
};

Registry<Stream>& streams();
Registry<Event>& events();
Registry<Module>& modules();
Registry<Kernel>& kernels();
Registry<Graph>& graphs();
Registry<GraphExec>& graph_execs();

// Does the work, or adds it to the stream's captured graph.
CUresult enqueue(CUstream stream, Node node);

// Whether this thread captures, and did not exchange its mode for the relaxed one: calls that may
// wait are then refused by check_no_capture(), and the capture is lost.
bool refuses_waits();
CUresult check_no_capture();
// Waiting for the device ends the captures of its streams; using the default stream, those of
// streams that wait for it. Either is refused then.
CUresult check_device_wait();
CUresult check_default_stream();
// Null if `stream` is not capturing.
Graph* captured_by(CUstream stream);

// Returns 0 if there is not enough memory. Memory that is `graph_owned` is not counted as live.
CUdeviceptr allocate_memory(int device, std::size_t bytes, bool graph_owned,
                            int kind = STANDIN_DEVICE);
// Returns false if the address is not allocated. Checks the guard bytes around the allocation.
bool free_memory(CUdeviceptr address);
bool describe_memory(const void* address, StandinMemory* memory);
std::int64_t live_memory();
std::int64_t live_bytes();
std::int64_t memory_of(int device);  // number of allocations
void forget_declared_memory();
void set_memory_limit(std::int64_t bytes);
void declare_memory(void* address, std::size_t bytes, int kind);

// At the start of an entry point: counts the call and applies the script.
#define ATTN_STANDIN_CUDA(name, care)                                        \
  static Site site(#name, Care::care);                                       \
  if (const Verdict verdict = recorder().enter(site); verdict.status != 0) { \
    return static_cast<CUresult>(verdict.status);                            \
  }

}  // namespace attn::standin
