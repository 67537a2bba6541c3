// Streams, which execute immediately in the calling thread; events; and graphs, which are lists of
// stream operations.
#include <algorithm>
#include <utility>

#include "tests/standin/cuda_state.h"

namespace attn::standin {
namespace {

thread_local int strict_captures = 0;  // captures begun by this thread, but those in relaxed mode
thread_local long refusals = 0;        // calls that would have waited; each spoils these captures
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool same_shape(const Graph& a, const Graph& b) {
  if (a.nodes.size() != b.nodes.size()) return false;
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    if (a.nodes[i].what != b.nodes[i].what) return false;
  }
  return a.memory.empty() && b.memory.empty();
}

// The stream of the capture that a stream takes part in; null if it is not captured.
Stream* capturing(CUstream stream) {
  Stream* found = stream == nullptr ? nullptr : streams().find(stream);
  if (found != nullptr && found->origin != nullptr) found = streams().find(found->origin);
  return found == nullptr || !found->captured ? nullptr : found;
}

// A stream that waits for captured work is captured too, and its work must be waited for in turn.
void wait_for(const Event& event, CUstream stream) {
  Stream* const origin = capturing(event.captured_on);
  if (origin == nullptr || streams().find(stream) == nullptr) return;
  if (capturing(stream) == nullptr) {
    Stream& joining = *streams().find(stream);
    Stream& recorded = *streams().find(event.captured_on);
    joining.origin = recorded.origin == nullptr ? event.captured_on : recorded.origin;
    joining.nodes = joining.awaited = 0;
    origin->joined.push_back(stream);
  }
  Stream& awaited = *streams().find(event.captured_on);
  awaited.awaited = std::max(awaited.awaited, event.node);
}

// Whether all work of streams that are captured with this one is waited for.
bool is_joined(const Stream& stream) {
  return std::ranges::all_of(stream.joined, [](CUstream each) {
    const Stream* found = streams().find(each);
    return found == nullptr || found->nodes <= found->awaited;
  });
}

// Must be called on the thread that began the capture.
void end_capture(Stream& stream) {
  for (CUstream each : stream.joined) {
    if (Stream* found = streams().find(each)) found->origin = nullptr;
  }
  stream.joined.clear();
  stream.captured.reset();
  stream.is_captured = false;
  if (stream.mode != CU_STREAM_CAPTURE_MODE_RELAXED) --strict_captures;
}

CUresult create(CUstream* stream, unsigned int flags) {
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  auto made = std::make_unique<Stream>();
  made->device = current_device();
  made->blocks = (flags & CU_STREAM_NON_BLOCKING) == 0;
  *stream = static_cast<CUstream>(streams().add(std::move(made)));
  return CUDA_SUCCESS;
}

bool is_default(CUstream stream) { return stream == nullptr || stream == CU_STREAM_LEGACY; }

// Spoils the captures of this device's streams that `meets`; whether there are any.
template <typename Meets>
bool spoil(const Meets& meets) {
  bool any = false;
  streams().for_each([&](Stream& stream) {
    if (stream.device != current_device() || !stream.is_captured || !meets(stream)) return;
    stream.is_spoilt = true;
    any = true;
  });
  return any;
}

CUresult no_such(const char* function, const char* what) {
  violate(function, std::string("no such ") + what);
  return CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

Registry<Stream>& streams() {
  static auto& all = *new Registry<Stream>(0x51);
  return all;
}
Registry<Event>& events() {
  static auto& all = *new Registry<Event>(0x52);
  return all;
}
Registry<Graph>& graphs() {
  static auto& all = *new Registry<Graph>(0x53);
  return all;
}
Registry<GraphExec>& graph_execs() {
  static auto& all = *new Registry<GraphExec>(0x54);
  return all;
}

bool refuses_waits() {
  return strict_captures > 0 && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
}

CUresult check_no_capture() {
  if (!refuses_waits()) return CUDA_SUCCESS;
  ++refusals;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult check_device_wait() {
  return spoil([](const Stream&) { return true; }) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                                   : CUDA_SUCCESS;
}

CUresult check_default_stream() {
  return spoil([](const Stream& stream) { return stream.blocks; })
             ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
             : CUDA_SUCCESS;
}

Graph* captured_by(CUstream stream) {
  Stream* found = capturing(stream);
  return found == nullptr ? nullptr : &*found->captured;
}

std::string number_of(const void* handle) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(handle));
}

void log_work(CUstream stream, const std::string& what) {
  recorder().detail(number_of(stream) + ' ' + what);
}

CUresult enqueue(CUstream stream, Node node) {
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  if (is_default(stream)) {
    if (const CUresult result = check_default_stream(); result != CUDA_SUCCESS) return result;
  }
  if (is_default(stream) || stream == CU_STREAM_PER_THREAD) {
    node.work();
    return CUDA_SUCCESS;
  }
  Stream* found = streams().find(stream);
  if (found == nullptr) return no_such("work", "stream");
  if (found->device != current_device()) return CUDA_ERROR_INVALID_CONTEXT;
  if (Graph* graph = captured_by(stream)) {
    graph->nodes.push_back(std::move(node));
    ++found->nodes;
  } else {
    node.work();
  }
  return CUDA_SUCCESS;
}

}  // namespace attn::standin

using namespace attn::standin;

ATTN_STANDIN_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  ATTN_STANDIN_CUDA(cuStreamCreate, checked)
  return create(stream, flags);
}

ATTN_STANDIN_EXPORT CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int) {
  ATTN_STANDIN_CUDA(cuStreamCreateWithPriority, checked)
  return create(stream, flags);
}

ATTN_STANDIN_EXPORT CUresult cuStreamDestroy(CUstream stream) {
  ATTN_STANDIN_CUDA(cuStreamDestroy, ignored)
  const std::unique_ptr<Stream> gone = streams().remove(stream);
  if (gone == nullptr) return no_such("cuStreamDestroy", "stream");
  if (gone->captured) end_capture(*gone);
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  ATTN_STANDIN_CUDA(cuStreamSynchronize, checked)
  if (captured_by(stream) != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (is_default(stream)) {
    const CUresult result = check_no_capture();
    return result != CUDA_SUCCESS ? result : check_default_stream();
  }
  if (stream == CU_STREAM_PER_THREAD) return check_context();
  return streams().find(stream) == nullptr ? no_such("cuStreamSynchronize", "stream")
                                           : CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuEventCreate(CUevent* event, unsigned int) {
  ATTN_STANDIN_CUDA(cuEventCreate, checked)
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  *event = static_cast<CUevent>(events().add(std::make_unique<Event>(Event{current_device()})));
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuEventDestroy(CUevent event) {
  ATTN_STANDIN_CUDA(cuEventDestroy, ignored)
  return events().remove(event) == nullptr ? no_such("cuEventDestroy", "event") : CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  ATTN_STANDIN_CUDA(cuEventRecord, checked)
  Event* found = events().find(event);
  if (found == nullptr) return no_such("cuEventRecord", "event");
  log_work(stream, number_of(event));
  const CUresult result = enqueue(stream, {"event", [] {}});
  found->captured_on = captured_by(stream) == nullptr ? nullptr : stream;
  if (found->captured_on != nullptr) found->node = streams().find(stream)->nodes;
  return result;
}

ATTN_STANDIN_EXPORT CUresult cuEventSynchronize(CUevent event) {
  ATTN_STANDIN_CUDA(cuEventSynchronize, checked)
  return events().find(event) == nullptr ? no_such("cuEventSynchronize", "event") : CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuEventQuery(CUevent event) {
  ATTN_STANDIN_CUDA(cuEventQuery, checked)
  if (const CUresult result = check_no_capture(); result != CUDA_SUCCESS) return result;
  return events().find(event) == nullptr ? no_such("cuEventQuery", "event") : CUDA_SUCCESS;
}

// Work is done when it is enqueued, so there is nothing to wait for.
ATTN_STANDIN_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int) {
  ATTN_STANDIN_CUDA(cuStreamWaitEvent, checked)
  const Event* found = events().find(event);
  if (found == nullptr) return no_such("cuStreamWaitEvent", "event");
  log_work(stream, number_of(event));
  wait_for(*found, stream);
  return enqueue(stream, {"wait", [] {}});
}

ATTN_STANDIN_EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  ATTN_STANDIN_CUDA(cuEventElapsedTime, checked)
  if (events().find(start) == nullptr || events().find(end) == nullptr) {
    return no_such("cuEventElapsedTime", "event");
  }
  *milliseconds = 1;
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  ATTN_STANDIN_CUDA(cuStreamBeginCapture, checked)
  Stream* found = streams().find(stream);
  if (found == nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // the default stream
  if (capturing(stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  found->captured.emplace();
  found->is_captured = true;
  found->is_spoilt = false;
  found->mode = mode;
  found->refusals = refusals;
  if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) ++strict_captures;
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  ATTN_STANDIN_CUDA(cuStreamEndCapture, checked)
  *graph = nullptr;
  Stream* found = streams().find(stream);
  if (found == nullptr || !found->captured) return CUDA_ERROR_ILLEGAL_STATE;
  const bool joined = is_joined(*found);
  const bool refused = found->mode != CU_STREAM_CAPTURE_MODE_RELAXED && found->refusals != refusals;
  const bool spoilt = refused || found->is_spoilt;
  auto made = std::make_unique<Graph>(std::move(*found->captured));
  end_capture(*found);
  if (spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = static_cast<CUgraph>(graphs().add(std::move(made)));
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  ATTN_STANDIN_CUDA(cuThreadExchangeStreamCaptureMode, ignored)
  *mode = std::exchange(thread_mode, *mode);
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  ATTN_STANDIN_CUDA(cuStreamIsCapturing, checked)
  const auto waits = [](const Stream& each) { return each.is_captured && each.blocks; };
  if (is_default(stream) && streams().count_if(waits) > 0)
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = captured_by(stream) != nullptr ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                           : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                                         unsigned long long) {
  ATTN_STANDIN_CUDA(cuGraphInstantiateWithFlags, checked)
  const Graph* found = graphs().find(graph);
  if (found == nullptr) return no_such("cuGraphInstantiateWithFlags", "graph");
  auto made = std::make_unique<GraphExec>();
  made->graph = *found;
  *exec = static_cast<CUgraphExec>(graph_execs().add(std::move(made)));
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph,
                                               CUgraphExecUpdateResultInfo* info) {
  ATTN_STANDIN_CUDA(cuGraphExecUpdate, checked)
  GraphExec* updated = graph_execs().find(exec);
  const Graph* from = graphs().find(graph);
  if (updated == nullptr || from == nullptr) return no_such("cuGraphExecUpdate", "graph");
  if (updated->busy.load(std::memory_order_relaxed)) {
    violate("cuGraphExecUpdate", "a graph that is being launched");
  }
  *info = {};
  if (!same_shape(updated->graph, *from)) {
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  updated->graph = *from;
  info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  ATTN_STANDIN_CUDA(cuGraphLaunch, checked)
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  GraphExec* found = graph_execs().find(exec);
  if (found == nullptr) return no_such("cuGraphLaunch", "graph");
  if (captured_by(stream) != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream != nullptr && streams().find(stream) == nullptr) {
    return no_such("cuGraphLaunch", "stream");
  }
  if (found->busy.exchange(true, std::memory_order_relaxed)) {
    violate("cuGraphLaunch", "a graph that another thread launches");
  }
  for (const Node& node : found->graph.nodes) node.work();
  found->busy.store(false, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  ATTN_STANDIN_CUDA(cuGraphDestroy, ignored)
  return graphs().remove(graph) == nullptr ? no_such("cuGraphDestroy", "graph") : CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
  ATTN_STANDIN_CUDA(cuGraphExecDestroy, ignored)
  const std::unique_ptr<GraphExec> gone = graph_execs().remove(exec);
  if (gone == nullptr) return no_such("cuGraphExecDestroy", "graph");
  if (gone->busy.load(std::memory_order_relaxed)) {
    violate("cuGraphExecDestroy", "a graph that is being launched");
  }
  return CUDA_SUCCESS;
}
