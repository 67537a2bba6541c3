// Compiles generated kernels to cubins with NVRTC (runtime/nvrtc/library.h), in this process: it
// takes as long and as much memory as NVRTC needs. Needs no GPU and no driver.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/codegen/sources.h"
#include "runtime/base/status.h"
#include "runtime/nvrtc/library.h"
#include "runtime/worker/worker.h"

namespace attn::nvrtc {

using codegen::KernelKind;

// Compiles for compute capability sm / 10. `cudnn_folder` and errors: those of compile. `log`, if
// not null, receives the log of a success, with what the assembler says of each kernel
// (assembly.h).
Result<std::string> compile_kernel(const std::string& source, std::int64_t sm,
                                   const std::string& cudnn_folder,
                                   KernelKind kind = KernelKind::element_wise,
                                   std::string* log = nullptr);

// What a worker compiles kernels with (worker::serve).
Result<worker::CompiledKernel> compile_for_client(const worker::KernelSource& source,
                                                  const std::string& cudnn_folder);

}  // namespace attn::nvrtc
