// Compiles CUDA C++ to cubins with NVRTC, loaded at run time, in this process: it takes as long and
// as much memory as NVRTC needs. Needs no GPU and no driver.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/codegen/options.h"
#include "runtime/base/status.h"
#include "runtime/worker/worker.h"

namespace attn::nvrtc {

using codegen::KernelKind;

// Compiles for compute capability sm / 10. NVRTC is searched for next to the cuDNN in
// `cudnn_folder` (if not empty), in the dynamic linker's paths, and under the usual prefixes.
// Errors: cuda if NVRTC is not found (with every place tried) or lacks the architecture; internal,
// with NVRTC's log, if it rejects the source, which is a bug here. `log`, if not null, receives the
// log of a success, with what the assembler says of each kernel (assembly.h).
Result<std::string> compile_kernel(const std::string& source, std::int64_t sm,
                                   const std::string& cudnn_folder,
                                   KernelKind kind = KernelKind::element_wise,
                                   std::string* log = nullptr);

// What a worker compiles kernels with (worker::serve).
Result<worker::CompiledKernel> compile_for_client(const worker::KernelSource& source,
                                                  const std::string& cudnn_folder);

// "13.0": the version of the NVRTC that compile_kernel would use. Errors: cuda if it is not found.
Result<std::string> nvrtc_version(const std::string& cudnn_folder);

}  // namespace attn::nvrtc
