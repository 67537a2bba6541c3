// Rows of a tensor past the length of a batch, which memory has and a product must not see: a
// weight of 0 times NaN is NaN. What is copied of them becomes 0 in shared memory.
//
// A stage with such a tail is not full when its copies have arrived: they arrive at a barrier of
// their own. A warp that has no other task waits for it, clears the tail, and then fills the stage.
// So stages without a tail cost nothing, and whoever waits for a full stage need not know of it.
//
// Tails are numbered in the order in which they are announced. At most kOpen are open at once, one
// for each stage, because a stage is copied to again only when it is empty; so there is a slot for
// each, and one for the end.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// What is cleared of a stage: `bytes` of each of so many panels, which are `panel_bytes` apart,
// from `first` on; then as many bytes as are `behind` the last ones.
struct Tail {
  unsigned full;  // the barrier of the stage
  unsigned first, bytes, panels, panel_bytes, behind;
};

// Tails in shared memory: for each slot a barrier, then the words of its Tail.
template <int kOpen>
struct Tails {
  static constexpr int kSlots = kOpen + 1, kSlotBytes = 32, kBytes = kSlots * kSlotBytes;
  unsigned base;

  __device__ void init() const {
    for (int n = 0; n < kSlots; ++n) init_barrier(barrier(n), 1);
  }

  // The barrier at which copies of tail `n` arrive.
  __device__ unsigned barrier(int n) const { return base + n % kSlots * kSlotBytes; }

  // Announces tail `n`: called by the thread that copies, before it does.
  __device__ void announce(int n, const Tail& tail, unsigned bytes_of_copies) const {
    const unsigned words[] = {tail.full,   tail.first,       tail.bytes,
                              tail.panels, tail.panel_bytes, tail.behind};
    for (int i = 0; i < 6; ++i) store_shared(word(n, i), words[i]);
    arrive_expecting(barrier(n), bytes_of_copies);
  }
  // Says that there is no further tail than the `n` before.
  __device__ void end(int n) const {
    store_shared(word(n, 0), kNone);
    arrive(barrier(n));
  }

  // Waits for tail `n`, and clears it; called by a warp. False if there is none.
  __device__ bool clear(int n) const {
    wait(barrier(n), n / kSlots & 1);
    const unsigned full = load_shared(word(n, 0));
    if (full == kNone) return false;
    const unsigned bytes = load_shared(word(n, 2)), panels = load_shared(word(n, 3));
    const unsigned panel_bytes = load_shared(word(n, 4)), behind = load_shared(word(n, 5));
    unsigned first = load_shared(word(n, 1));
    for (unsigned panel = 0; panel < panels; ++panel, first += panel_bytes) {
      clear_bytes(first, bytes + (panel + 1 == panels ? behind : 0));
    }
    publish_writes();
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(full);
    return true;
  }
  // All of them, up to the end.
  __device__ void clear_all() const {
    for (int n = 0; clear(n); ++n) {
    }
  }

 private:
  static constexpr unsigned kNone = ~0u;
  static __device__ void clear_bytes(unsigned first, unsigned bytes) {
    for (unsigned at = threadIdx.x % 32 * 16; at < bytes; at += 32 * 16) clear_shared(first + at);
  }
  __device__ unsigned word(int n, int i) const { return barrier(n) + 8 + 4 * i; }
};
template <>
struct Tails<0> {
  static constexpr int kBytes = 0;
  unsigned base;
  __device__ void init() const {}
};

}  // namespace kernels
