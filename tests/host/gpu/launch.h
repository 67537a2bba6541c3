// How an emulated GPU runs a kernel (gpu.h).
#pragma once

#include <cstddef>

namespace attn::gpu {

// When it does what it does asynchronously, and which threads of a block run before others.
enum class Order {
  // Copies happen when they are issued, products when they are waited for; the first threads run
  // first.
  early_copies,
  // Products happen when they are committed, copies when nothing else can; the last threads run
  // first.
  late_copies,
};

struct Launch {
  unsigned blocks = 1, threads = 1;  // of a block; along x
  std::size_t shared_bytes = 0;
  unsigned at_once =
      1;  // blocks that run together, taking turns; the next one begins when one ends
};

}  // namespace attn::gpu
