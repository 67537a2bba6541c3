// The CUDA driver API, loaded at run time. Internal to runtime/cuda, since it includes cuda.h.
#pragma once

#include <cuda.h>

#include <string_view>

#include "runtime/base/status.h"

namespace attn::cuda {

struct Driver {
#define ATTN_CUDA_FUNCTION(member, function) decltype(&::function) member = nullptr;
#define ATTN_CUDA_OPTIONAL ATTN_CUDA_FUNCTION
#include "runtime/cuda/driver.def"
#undef ATTN_CUDA_OPTIONAL
#undef ATTN_CUDA_FUNCTION

  // Ok, or an error `cuda` "<action>: CUDA_ERROR_X (the driver's text)" with the number and kind as
  // payload (failure.h).
  Status check(CUresult result, std::string_view action) const;
};

// The driver, loaded and initialized (cuInit) on first use and kept from then on. Failures are not
// cached, since a driver or device may appear while the process runs. Thread-safe. Errors: cuda, if
// libcuda.so.1 is missing, lacks a function, or finds no device.
Result<const Driver*> driver();

}  // namespace attn::cuda
