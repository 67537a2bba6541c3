// How an emulated GPU runs a kernel (gpu.h).
#pragma once

#include <cstddef>

namespace attn::gpu {

// When it does what it does asynchronously.
enum class Order {
  early_copies,  // copies happen when they are issued, products when they are waited for
  late_copies,   // products happen when they are committed, copies when nothing else can
};

struct Launch {
  unsigned blocks = 1, threads = 1;  // of a block; along x
  std::size_t shared_bytes = 0;
};

}  // namespace attn::gpu
