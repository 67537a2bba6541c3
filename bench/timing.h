// How long an executable takes: the device's time alone, and the host's time alone.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "bench/bare_execute.h"
#include "runtime/base/status.h"
#include "runtime/execute/executable.h"

namespace attn::bench {

struct TimingOptions {
  int warmup = 5;                             // executes before the first sample
  int runs = 30;                              // samples, at least 1
  std::chrono::nanoseconds pause{2'000'000};  // on the device, before the start event
  double flop = 0;                            // of one execute; 0: no TFLOP/s
};

struct Timing {
  double median_ms = 0;
  double p10_ms = 0;
  double p90_ms = 0;
  double tflops = 0;  // 10^12 FLOP a second at the median; 0 when no FLOP count was given
  std::vector<double> samples_ms;  // in the order in which they were taken
};

// Device time of one execute on a stream of its own. Before each sample the L2 cache is flushed and
// the device pauses: the host enqueues start event, kernels and end event during the pause, so that
// its own time does not leak between the events. Errors: those of Binding::execute, cuda.
Result<Timing> time_on_device(const cuda::Device& device, execute::Binding& binding,
                              const TimingOptions& options = {});

struct HostTimingOptions {
  int blocks = 21;  // of each way, in turns
  int calls = 100;  // a block; the queue is drained before each, and must be able to hold them
};

// One way of enqueuing the same work.
struct Way {
  std::string name;
  std::function<Status(void* stream)> call;
};

struct HostTiming {
  std::string name;
  double us = 0;     // of a call: median over blocks
  double ratio = 0;  // to the first way: median over pairs of neighbouring blocks
};

// Host time of each way, on one stream: a block of `calls` calls of each, then again. Errors: those
// of the ways, cuda.
Result<std::vector<HostTiming>> time_on_host(const cuda::Device& device,
                                             const std::vector<Way>& ways,
                                             const HostTimingOptions& options = {});

// cudnnBackendExecute with kept variant packs, then an execute of the binding.
std::vector<Way> bare_and_ours(BareExecute& bare, execute::Binding& binding);

// One JSON object: {"median_ms": .., "p10_ms": .., "p90_ms": .., "runs": .., "tflops": ..}, or
// {"NAME_us": .., .., "NAME_ratio": .., ..} of all ways but the first's ratio.
std::string to_json(const Timing& timing);
std::string to_json(const std::vector<HostTiming>& timings);

}  // namespace attn::bench
