#include "runtime/cuda/graph.h"

#include <utility>

#include "runtime/cuda/context.h"

namespace attn::cuda {
namespace {

// What a capture made.
class Recording {
 public:
  explicit Recording(const Context& context) : context_(context) {}
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording() {
    if (graph_ != nullptr) context_.driver().graph_destroy(graph_);
  }

  // Calls that CUDA does not allow during a capture are errors for this thread alone.
  Status record(const Stream& stream, const Graph::Record& record) {
    const auto handle = static_cast<CUstream>(stream.handle());
    const Driver& driver = context_.driver();
    ATTN_RETURN_IF_ERROR(
        context_.check(driver.stream_begin_capture(handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                       "beginning a capture"));
    Ending ending{driver, handle, graph_};
    const Status recorded = record(stream.handle());
    const Status ended = context_.check(ending.now(), "ending a capture");
    return recorded.ok() ? ended : recorded;
  }

  Status instantiate(CUgraphExec& exec) const {
    return context_.check(context_.driver().graph_instantiate(&exec, graph_, 0),
                          "instantiating a CUDA graph");
  }

  bool update(void* exec) const {
    CUgraphExecUpdateResultInfo why{};
    return context_.driver().graph_update(static_cast<CUgraphExec>(exec), graph_, &why) ==
           CUDA_SUCCESS;
  }

 private:
  // A capture ends also when what is recorded throws.
  struct Ending {
    ~Ending() { now(); }
    CUresult now() {
      if (ended) return CUDA_SUCCESS;
      ended = true;
      return driver.stream_end_capture(stream, &graph);
    }
    const Driver& driver;
    CUstream stream;
    CUgraph& graph;
    bool ended = false;
  };

  const Context& context_;
  CUgraph graph_ = nullptr;
};

void destroy(const Context& context, void* exec) {
  Scope scope;
  if (exec == nullptr || !scope.enter(context).ok()) return;
  context.driver().graph_exec_destroy(static_cast<CUgraphExec>(exec));
}

}  // namespace

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
  Recording recording(*context_);
  ATTN_RETURN_IF_ERROR(recording.record(stream_, record));
  if (handle_ != nullptr && recording.update(handle_)) return {};
  CUgraphExec exec = nullptr;
  ATTN_RETURN_IF_ERROR(recording.instantiate(exec));
  // Launches of the old one and of the new one are not in order by themselves.
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
