// NVRTC, loaded at run time: compiles CUDA C++ in this process. attnc uses it for kernels that it
// generates (compiler/nvrtc), and the build for those of libattn (embed_kernels.cpp); libattn
// itself does not have it. Needs no GPU and no driver.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace attn::nvrtc {

// A file that a source may include.
struct Header {
  std::string name;  // as in the #include
  std::string text;
};

struct Source {
  std::string text;
  std::vector<Header> headers;
  std::span<const char* const> options;  // all but the architecture
  std::int64_t sm = 0;                   // compute capability * 10
  bool is_specific = false;              // uses what only this architecture has: sm_90a
  bool is_ptx = false;                   // makes PTX, which drivers compile, instead of a cubin
};

// NVRTC is searched for next to the cuDNN in `cudnn_folder` (if not empty), in the dynamic linker's
// paths, and under the usual prefixes. Errors: cuda if it is not found (with every place tried) or
// lacks the architecture; internal, with NVRTC's log, if it rejects the source, which is a bug
// here. `log`, if not null, receives the log of a success.
Result<std::string> compile(const Source& source, const std::string& cudnn_folder,
                            std::string* log = nullptr);

// "13.0": the version of the NVRTC that compile would use. Errors: cuda if it is not found.
Result<std::string> nvrtc_version(const std::string& cudnn_folder);

}  // namespace attn::nvrtc
