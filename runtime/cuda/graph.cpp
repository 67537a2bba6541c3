#include "runtime/cuda/graph.h"

#include <utility>

#include "runtime/cuda/context.h"

namespace attn::cuda {
namespace {

// Ends the capture even if recording throws, and destroys its graph unless it was taken.
struct Ending {
  ~Ending() {
    now();
    if (graph != nullptr) driver.graph_destroy(graph);
  }
  CUresult now() {
    if (ended) return CUDA_SUCCESS;
    ended = true;
    return driver.stream_end_capture(stream, &graph);
  }
  const Driver& driver;
  CUstream stream;
  CUgraph graph = nullptr;
  bool ended = false;
};

void destroy(const Context& context, void* exec) {
  Scope scope;
  if (exec == nullptr || !scope.enter(context).ok()) return;
  context.driver().graph_exec_destroy(static_cast<CUgraphExec>(exec));
}

Result<void*> instantiate(const Context& context, void* graph) {
  CUgraphExec exec = nullptr;
  ATTN_RETURN_IF_ERROR(
      context.check(context.driver().graph_instantiate(&exec, static_cast<CUgraph>(graph), 0),
                    "instantiating a CUDA graph"));
  return exec;
}

bool update_in_place(const Context& context, void* exec, void* graph) {
  CUgraphExecUpdateResultInfo why{};
  return context.driver().graph_update(static_cast<CUgraphExec>(exec), static_cast<CUgraph>(graph),
                                       &why) == CUDA_SUCCESS;
}

}  // namespace

// Thread-local capture: only this thread's calls are checked against what CUDA allows meanwhile.
Result<Recording> Recording::make(const Stream& stream, const Record& record) {
  const Context& context = *stream.context();
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(context));
  const auto handle = static_cast<CUstream>(stream.handle());
  ATTN_RETURN_IF_ERROR(context.check(
      context.driver().stream_begin_capture(handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
      "beginning a capture"));
  Ending ending{context.driver(), handle};
  const Status recorded = record(stream.handle());
  const Status ended = context.check(ending.now(), "ending a capture");
  Recording recording(stream.context(), std::exchange(ending.graph, nullptr));
  if (!recorded.ok()) return recorded.error();
  if (!ended.ok()) return ended.error();
  return recording;
}

Recording::Recording(std::shared_ptr<const Context> context, void* handle)
    : context_(std::move(context)), handle_(handle) {}

Recording::Recording(Recording&& other) noexcept
    : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, nullptr)) {}

Recording& Recording::operator=(Recording&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(handle_, other.handle_);
  return *this;
}

Recording::~Recording() {
  if (handle_ != nullptr) context_->driver().graph_destroy(static_cast<CUgraph>(handle_));
}

Graph::Graph(Stream stream) : stream_(std::move(stream)) {}

Graph::Graph(Graph&& other) noexcept
    : context_(std::move(other.context_)),
      stream_(std::move(other.stream_)),
      handle_(std::exchange(other.handle_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(stream_, other.stream_);
  std::swap(handle_, other.handle_);
  return *this;
}

Graph::~Graph() {
  if (context_ != nullptr) destroy(*context_, handle_);
}

Result<Graph> Graph::capture(const Device& device, const Record& record) {
  ATTN_ASSIGN(Stream stream, Stream::create(device));
  Graph graph(std::move(stream));
  graph.context_ = device.context();
  ATTN_RETURN_IF_ERROR(graph.update(record));
  return graph;
}

Status Graph::update(const Record& record) {
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(*context_));
  ATTN_ASSIGN(const Recording recording, Recording::make(stream_, record));
  if (handle_ != nullptr && update_in_place(*context_, handle_, recording.handle())) return {};
  ATTN_ASSIGN(void* exec, instantiate(*context_, recording.handle()));
  // Launches of the old and the new graph are not ordered, so wait for the old ones.
  if (handle_ != nullptr) {
    const Status waited =
        context_->check(context_->driver().context_synchronize(), "waiting for a CUDA graph");
    if (!waited.ok()) {
      destroy(*context_, exec);
      return waited;
    }
  }
  destroy(*context_, std::exchange(handle_, exec));
  return {};
}

Status Graph::launch(void* stream) const {
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(*context_));
  return context_->check(context_->driver().graph_launch(static_cast<CUgraphExec>(handle_),
                                                         static_cast<CUstream>(stream)),
                         "launching a CUDA graph");
}

}  // namespace attn::cuda
