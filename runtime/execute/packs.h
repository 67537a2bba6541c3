// The bound steps for the most recently used sets of addresses. Internal to runtime/execute.
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
  std::vector<BoundStep> steps;  // one for each entry of the executable's order
  bool checked = false;          // the addresses were checked
  std::uint64_t used = 0;        // 0: empty
};

// A small LRU cache of packs. For one thread at a time.
class Packs {
 public:
  explicit Packs(std::size_t kept) : packs_(kept) {}

  // The pack for these bases, or null; counts as a use. Valid until the next slot().
  Pack* find(const Bases& bases);

  // The pack to overwrite; counts as a use.
  Pack& slot();

 private:
  std::vector<Pack> packs_;  // allocated up front
  std::size_t last_ = 0;     // last found or returned
  std::uint64_t clock_ = 0;
};

}  // namespace attn::execute
