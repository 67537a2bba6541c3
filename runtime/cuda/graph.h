// CUDA graphs, captured from a stream.
#pragma once

#include <functional>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/cuda/stream.h"

namespace attn::cuda {

// Enqueues work on the given stream, which is being captured: operations that CUDA does not allow
// then (allocating, waiting) fail.
using Record = std::function<Status(void* stream)>;

// A CUDA graph (CUgraph) captured from a stream.
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

// An executable CUDA graph. For one thread at a time. Launches of one graph run one after another,
// on any streams.
class Graph {
 public:
  using Record = cuda::Record;

  // Errors: those of `record`, cuda.
  static Result<Graph> capture(const Device& device, const Record& record);
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  ~Graph();

  // Makes later launches do what `record` enqueues now; earlier launches are not affected. Cheapest
  // if the nodes are the same and only arguments differ; otherwise instantiates the graph again and
  // waits for the device.
  Status update(const Record& record);

  Status launch(void* stream) const;

 private:
  explicit Graph(Stream stream);

  std::shared_ptr<const Context> context_;
  Stream stream_;           // used for capture
  void* handle_ = nullptr;  // CUgraphExec
};

}  // namespace attn::cuda
