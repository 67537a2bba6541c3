// Device time of a run, and host time of a plan.
#pragma once

#include "bench/flashinfer_peer/batch.h"

namespace attn::flashinfer_peer {

// Median of five plans, in microseconds, each until its copy to the device has been enqueued.
double plan_microseconds(const Kernel& kernel, const Batch& batch, cudaStream_t stream);

// Device time of one run in microseconds: the median of 7 replays of a CUDA graph of 10 runs, as
// attnc's own times of these cases. The L2 cache is not flushed between runs.
double run_microseconds(const Run& run, cudaStream_t stream);

}  // namespace attn::flashinfer_peer
