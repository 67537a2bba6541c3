// The kernels of this folder, compiled when libattn is built.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/status.h"

namespace attn::operations {

struct Image {
  std::int64_t sm = 0;  // compute capability * 10
  bool is_ptx = false;  // otherwise a cubin
  std::string_view bytes;
};

// All there are; runtime/nvrtc/embed_kernels.cpp writes the definition.
std::span<const Image> images();

// The image for a GPU: the newest cubin of its major capability that is not newer than the GPU,
// else the newest PTX, which the driver compiles. Errors: unsupported if the GPU is older than all.
Result<Image> choose(std::span<const Image> all, std::int64_t sm);

}  // namespace attn::operations
