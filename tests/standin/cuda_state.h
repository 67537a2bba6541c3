// What the stand-in for the CUDA driver consists of. Private to it.
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

// A device and its primary context, whose handle is the address.
struct Device {
  std::atomic<int> sm{90};
  std::atomic<int> retained{0};
  std::atomic<std::int64_t> bytes_used{0};
};
std::array<Device, kMostDevices>& devices();
int ordinal_of(const void* context);  // -1: no context

// The device of this thread's context; -1 when there is none or it is gone.
int current_device();
// Ok, or why calls on this thread cannot work.
CUresult check_context();

// A kernel, or what else a stream does.
struct Node {
  std::string what;
  std::function<void()> work;
};

// Memory that a graph allocates when it is captured; freed with the last that knows it.
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
  std::optional<Graph> captured;  // while it captures
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
};

struct Event {
  int device = 0;
};

struct Kernel {
  std::string name;
  Work work;
  std::vector<std::size_t> parameters;  // bytes of each
};
struct Module {
  int device = 0;
  bool is_real = false;  // an image that no work is known of
  Kernels works;
  Parameters parameters;       // of the kernels of a real one
  std::vector<void*> kernels;  // those that were asked for, in kernels()
};

Registry<Stream>& streams();
Registry<Event>& events();
Registry<Module>& modules();
Registry<Kernel>& kernels();
Registry<Graph>& graphs();
Registry<GraphExec>& graph_execs();

// Does the work, or adds it to what the stream captures.
CUresult enqueue(CUstream stream, Node node);

// Whether a stream of this thread captures; and so that what may disturb a capture is refused.
bool is_capturing();
CUresult check_no_capture();
// Null when `stream` captures nothing.
Graph* captured_by(CUstream stream);

// 0 when there is no room. `graph_owned`: by no caller, so that it is none of the live memory.
CUdeviceptr allocate_memory(int device, std::size_t bytes, bool graph_owned);
// False when there was none; what is behind it and before it must be as it was.
bool free_memory(CUdeviceptr address);
bool describe_memory(const void* address, StandinMemory* memory);
std::int64_t live_memory();
std::int64_t live_bytes();
std::int64_t memory_of(int device);  // how many allocations
void forget_declared_memory();
void set_memory_limit(std::int64_t bytes);
void declare_memory(void* address, std::size_t bytes, int kind);

// At the start of an entry point: counts it and does what the script says.
#define ATTN_STANDIN_CUDA(name, care)                                        \
  static Site site(#name, Care::care);                                       \
  if (const Verdict verdict = recorder().enter(site); verdict.status != 0) { \
    return static_cast<CUresult>(verdict.status);                            \
  }

}  // namespace attn::standin
