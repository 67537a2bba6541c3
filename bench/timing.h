// Measures the device time and the host time of an executable.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
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
  double tflops = 0;               // TFLOP/s at the median; 0 without a FLOP count
  std::vector<double> samples_ms;  // in the order taken
};

// Device time of one execute on a new stream. Before each sample the L2 cache is flushed and the
// device pauses: the host enqueues start event, kernels and end event during the pause, so that
// host time is not measured. Errors: those of Binding::execute, cuda.
Result<Timing> time_on_device(const cuda::Device& device, execute::Binding& binding,
                              const TimingOptions& options = {});

struct HostTimingOptions {
  int blocks = 21;  // per way, interleaved
  int calls = 100;  // per block; the queue is drained before each block, and must hold all calls
};

// A way to enqueue the same work.
struct Way {
  std::string name;
  std::function<Status(void* stream)> call;
};

struct HostTiming {
  std::string name;
  double us = 0;     // per call: median over blocks
  double ratio = 0;  // to the first way: median over pairs of adjacent blocks
};

// Host time of each way, on one stream. Each round runs one block of `calls` calls per way. Errors:
// those of the ways, cuda.
Result<std::vector<HostTiming>> time_on_host(const cuda::Device& device,
                                             const std::vector<Way>& ways,
                                             const HostTimingOptions& options = {});

// The ways "bare" (cudnnBackendExecute with cached variant packs) and "execute" (the binding).
std::vector<Way> bare_and_ours(BareExecute& bare, execute::Binding& binding);

// One object: {"median_ms": .., "p10_ms": .., "p90_ms": .., "runs": .., "tflops": ..}, or
// {"NAME_us": .., .., "NAME_ratio": .., ..} of all ways; the first has no ratio.
nlohmann::ordered_json json_of(const Timing& timing);
nlohmann::ordered_json json_of(const std::vector<HostTiming>& timings);

}  // namespace attn::bench
