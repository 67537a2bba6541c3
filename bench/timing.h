// How long an executable takes: the device's time alone, and the host's time alone.
#pragma once

#include <chrono>
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
// its own time does not leak between the events. Errors: those of Executable::execute, cuda.
Result<Timing> time_on_device(execute::Executable& executable, const execute::Binding& binding,
                              const TimingOptions& options = {});

struct HostTimingOptions {
  int blocks = 21;  // of each kind, alternating
  int calls = 100;  // a block; the queue is drained before each, and must be able to hold them
};

struct HostTiming {
  double execute_us = 0;  // host time of one Executable::execute: median over blocks
  double bare_us = 0;     // of cudnnBackendExecute with a kept variant pack, likewise
  double ratio = 0;       // median over pairs of neighbouring blocks
};

// Blocks of `calls` executes in turns with blocks of bare executes of the same plan on the same
// tensors, on one stream. Errors: those of Executable::execute, cuda.
Result<HostTiming> time_on_host(execute::Executable& executable, const execute::Binding& binding,
                                BareExecute& bare, const HostTimingOptions& options = {});

// One JSON object each: {"median_ms": .., "p10_ms": .., "p90_ms": .., "runs": .., "tflops": ..} and
// {"execute_us": .., "bare_us": .., "ratio": ..}.
std::string to_json(const Timing& timing);
std::string to_json(const HostTiming& timing);

}  // namespace attn::bench
