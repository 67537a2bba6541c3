// What the steps are executed with, for the sets of addresses that were used last. Private to this
// room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/execute/steps.h"

namespace attn::execute {

struct Pack {
  std::vector<void*> tensors;  // the addresses that it was made for
  void* workspace = nullptr;
  std::vector<BoundStep> steps;  // one for each of the executable's order
  bool checked = false;          // the addresses were looked at
  std::uint64_t used = 0;        // 0: none yet
};

// A few packs, of which the least recently used gives way. One thread at a time.
class Packs {
 public:
  explicit Packs(std::size_t kept) : packs_(kept) {}

  // The pack for these bases, or null; a use of it. Valid until the next slot().
  Pack* find(const Bases& bases);

  // The pack to overwrite; a use of it.
  Pack& slot();

 private:
  std::vector<Pack> packs_;  // as many as are kept, from the beginning
  std::size_t last_ = 0;     // found or given
  std::uint64_t clock_ = 0;
};

}  // namespace attn::execute
