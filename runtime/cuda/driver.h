// The CUDA driver API, loaded at run time. Private to this room: it includes cuda.h.
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

  // Ok, or an error `cuda` that reads "<action>: CUDA_ERROR_X (the driver's words)", with its
  // number and kind as payload (failure.h).
  Status check(CUresult result, std::string_view action) const;
};

// The driver, loaded and initialised (cuInit) on first use and kept from then on. A failure is not
// kept: the next call tries again, since a driver or a device may appear while a process runs. Safe
// to call from any thread. Errors: cuda, when there is no libcuda.so.1, it lacks a function, or it
// finds no device.
Result<const Driver*> driver();

}  // namespace attn::cuda
