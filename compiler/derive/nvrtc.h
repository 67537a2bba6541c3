// CUDA C++ -> cubin, by NVRTC, loaded at run time. Needs no GPU and no driver.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/status.h"

namespace attn::derive {

// For compute capability sm / 10. NVRTC is looked for beside the cuDNN in `cudnn_folder` (when not
// empty), where the dynamic linker looks, and under the usual prefixes. Errors: cuda, when there is
// no NVRTC (with every place tried) or it has no such architecture; internal, with NVRTC's log,
// when it refuses the source, which is ours.
Result<std::string> compile_kernel(const std::string& source, std::int64_t sm,
                                   const std::string& cudnn_folder);

}  // namespace attn::derive
