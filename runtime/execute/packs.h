// What is kept for the most recently used sets of addresses: variant packs of cuDNN's steps, and
// whether the addresses were checked. Arguments of kernels are moved instead (addresses.h).
// Internal to runtime/execute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/execute/steps.h"

namespace attn::execute {

struct Pack {
  std::vector<void*> tensors;  // the addresses that it is for
  void* workspace = nullptr;
  ScheduleMemory schedule{};
  std::vector<cudnn::VariantPack> of_cudnn;  // one for each of its steps, loops unrolled
  bool checked = false;                      // the addresses were checked
  std::uint64_t used = 0;                    // 0: empty
};

// A small LRU cache of packs. For one thread at a time.
class Packs {
 public:
  explicit Packs(std::size_t kept) : packs_(kept) {}

  // The pack for these bases, or null; counts as a use. Valid until the next add().
  Pack* find(const Bases& bases);

  // A pack for these bases, in place of the one that was used least recently; counts as a use.
  Pack& add(const Bases& bases);

 private:
  std::vector<Pack> packs_;  // allocated up front
  std::size_t last_ = 0;     // last found or returned
  std::uint64_t clock_ = 0;
};

}  // namespace attn::execute
