// Work that was recorded from a stream once, and is launched as a whole.
#pragma once

#include <functional>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/cuda/stream.h"

namespace attn::cuda {

// Enqueues on the stream that it is given, which is being captured: anything that CUDA does not
// allow then (allocating, waiting) is an error.
using Record = std::function<Status(void* stream)>;

// A CUDA graph (CUgraph) of what was enqueued on a stream.
class Recording {
 public:
  // Errors: those of `record`, cuda.
  static Result<Recording> make(const Stream& stream, const Record& record);
  Recording(Recording&& other) noexcept;
  Recording& operator=(Recording&& other) noexcept;
  ~Recording();

  void* handle() const { return handle_; }  // CUgraph, destroyed with this

 private:
  Recording(std::shared_ptr<const Context> context, void* handle);
  std::shared_ptr<const Context> context_;
  void* handle_ = nullptr;
};

// An executable CUDA graph. One thread at a time. Launches of one graph run one after another, on
// whatever streams.
class Graph {
 public:
  using Record = cuda::Record;

  // Errors: those of `record`, cuda.
  static Result<Graph> capture(const Device& device, const Record& record);
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  ~Graph();

  // Launches from now on do what `record` enqueues now; those before are not affected. Cheapest
  // where the nodes are the same and only their arguments differ; otherwise instantiates anew, and
  // waits for the device.
  Status update(const Record& record);

  Status launch(void* stream) const;

 private:
  explicit Graph(Stream stream);

  std::shared_ptr<const Context> context_;
  Stream stream_;           // on which is captured
  void* handle_ = nullptr;  // CUgraphExec
};

}  // namespace attn::cuda
