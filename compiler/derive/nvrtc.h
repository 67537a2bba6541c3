// Compiles CUDA C++ to cubins with NVRTC, loaded at run time. Needs no GPU and no driver.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/status.h"

namespace attn::derive {

// What a kernel is compiled with.
enum class KernelKind : std::uint8_t {
  element_wise,  // results are those of the operations as written: nothing is contracted to an FMA
  general,       // FMAs, quotients and roots within 2 units in the last place, no subnormal floats,
                 // and what only this architecture has (sm_90a)
};

// Compiles for compute capability sm / 10. NVRTC is searched for next to the cuDNN in
// `cudnn_folder` (if not empty), in the dynamic linker's paths, and under the usual prefixes.
// Errors: cuda if NVRTC is not found (with every place tried) or lacks the architecture; internal,
// with NVRTC's log, if it rejects the source, which is a bug here. `report`, if not null, receives
// what the assembler says of a kernel: registers, spills, warnings.
Result<std::string> compile_kernel(const std::string& source, std::int64_t sm,
                                   const std::string& cudnn_folder,
                                   KernelKind kind = KernelKind::element_wise,
                                   std::string* report = nullptr);

}  // namespace attn::derive
