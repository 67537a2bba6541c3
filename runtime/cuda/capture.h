// Calls that CUDA does not record, made while a stream is being captured into a CUDA graph.
#pragma once

#include <optional>

#include "runtime/cuda/device.h"

namespace attn::cuda {

// Lets this thread allocate, free, and load kernels while a stream is being captured, until the end
// of the scope. The driver refuses such calls if this thread captures, or any thread does in global
// mode, as PyTorch, and the capture is lost: they may wait for the device, which a graph cannot
// record. In relaxed mode it allows them. That is right for what touches nothing that is captured:
// memory that is new, or that nothing uses any more. Calls that the captured work would have to
// wait for stay wrong, and no mode makes them right.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Device& device) : RelaxedCapture(*device.context()) {}
  explicit RelaxedCapture(const Context& context);
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Context& context_;
  std::optional<int> before_;  // CUstreamCaptureMode
};

}  // namespace attn::cuda
