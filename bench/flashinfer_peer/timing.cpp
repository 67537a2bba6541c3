#include "bench/flashinfer_peer/timing.h"

#include <algorithm>
#include <chrono>

namespace attn::flashinfer_peer {
namespace {

constexpr int kPlans = 5;
constexpr int kRuns = 10;    // of a graph
constexpr int kReplays = 7;  // after one that warms up

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

cudaGraphExec_t graph_of(const Run& run, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
  for (int i = 0; i < kRuns; ++i) run(stream);
  check(cudaStreamEndCapture(stream, &graph), "ending a capture");
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "instantiating a graph");
  check(cudaGraphDestroy(graph), "destroying a graph");
  return executable;
}

double replay(cudaGraphExec_t graph, cudaEvent_t begin, cudaEvent_t end, cudaStream_t stream) {
  float milliseconds = 0;
  check(cudaEventRecord(begin, stream), "recording an event");
  check(cudaGraphLaunch(graph, stream), "replaying a graph");
  check(cudaEventRecord(end, stream), "recording an event");
  check(cudaEventSynchronize(end), "running a graph");
  check(cudaEventElapsedTime(&milliseconds, begin, end), "reading events");
  return 1000.0 * milliseconds / kRuns;
}

}  // namespace

double plan_microseconds(const Kernel& kernel, const Batch& batch, cudaStream_t stream) {
  std::vector<double> samples;
  for (int i = 0; i < kPlans; ++i) {
    check(cudaStreamSynchronize(stream), "planning");
    const auto begin = std::chrono::steady_clock::now();
    kernel.plan(batch, stream);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    samples.push_back(took.count());
  }
  check(cudaStreamSynchronize(stream), "planning");  // the next plan reuses the pinned memory
  return median(samples);
}

double run_microseconds(const Run& run, cudaStream_t stream) {
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "creating an event");
  check(cudaEventCreate(&end), "creating an event");
  const cudaGraphExec_t graph = graph_of(run, stream);
  std::vector<double> samples;
  for (int i = 0; i <= kReplays; ++i) samples.push_back(replay(graph, begin, end, stream));
  samples.erase(samples.begin());
  check(cudaGraphExecDestroy(graph), "destroying a graph");
  check(cudaEventDestroy(begin), "destroying an event");
  check(cudaEventDestroy(end), "destroying an event");
  return median(samples);
}

}  // namespace attn::flashinfer_peer
