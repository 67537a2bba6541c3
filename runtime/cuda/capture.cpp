#include "runtime/cuda/capture.h"

#include "runtime/cuda/context.h"

namespace attn::cuda {

// An exchange fails only for a mode that there is not; outside captures no mode matters.
RelaxedCapture::RelaxedCapture(const Context& context) : context_(context) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (context.driver().exchange_capture_mode(&mode) == CUDA_SUCCESS) before_ = mode;
}

RelaxedCapture::~RelaxedCapture() {
  if (!before_) return;
  auto mode = static_cast<CUstreamCaptureMode>(*before_);
  context_.driver().exchange_capture_mode(&mode);
}

}  // namespace attn::cuda
