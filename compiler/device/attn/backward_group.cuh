// A thread of a warp group of the backward (backward.cuh): what it holds for products of warp
// groups, and how it waits for others.
#pragma once

#include "attn/backward_thread.cuh"

namespace kernels {

// What a warp group makes: dK and dS, dV and dQ, or all of them.
enum class Role { both, keys, values };

template <class Base>
struct ThreadOfGroup : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::group, Base::steps, Base::ds, Base::kept, Base::lane, Base::warp;
  static constexpr bool kShared = S::kShared;
  // A warp group computes dQ of so many times 64 columns, in one or two parts, and, where there are
  // 64 in all and two compute it, of a half of the rows.
  static constexpr int kPanels = kShared ? C::kDepth / 64 : 1;
  static constexpr int kParts = kPanels > 1 ? 2 : 1;
  static constexpr int kPanelsOfPart = (kPanels + kParts - 1) / kParts;
  static constexpr bool kHalves = !kShared && C::kDepth == 64;
  static constexpr int kSumRows = kHalves ? C::kBlockRows / 2 : C::kBlockRows;
  static_assert(kShared || C::kDepth <= 128, "two warp groups, 64 columns each");

  float dq[kPanelsOfPart][kSumRows / 2];

  __device__ __forceinline__ void release(unsigned full) {
    __syncwarp();
    if (lane() == 0) arrive(empty_of(full));
  }

  __device__ __forceinline__ static unsigned parity_of(unsigned step) { return step >> 1 & 1; }

  // The number of this warp among those that have different keys.
  __device__ __forceinline__ int warp_of_keys() const { return (kShared ? 0 : group * 4) + warp(); }

  // This lane's place in a matrix of rows of q that is stored as TMA does: panels of 64 keys, a row
  // of 128 bytes for each row of q, swizzled. Four matrices are 16 keys of 16 rows.
  __device__ __forceinline__ unsigned transposed(unsigned matrix) const {
    const unsigned panel = kShared ? 0 : group;
    return matrix + panel * (C::kBlockRows * 128) + (lane() & 7) * 128 + (lane() >> 4) * 1024 +
           ((warp() * 2 + (lane() >> 3 & 1) ^ lane() & 7) << 4);
  }
  // Stores dS^T of two times 8 rows, up to the 2 j + 2nd, from this lane's place on.
  __device__ __forceinline__ void store_slopes(unsigned place, int j) const {
    store_transposed(place + j / 2 * 2048, ds[2 * j - 2], ds[2 * j - 1], ds[2 * j], ds[2 * j + 1]);
  }
  __device__ __forceinline__ unsigned slopes_of_lane(int n) const {
    return transposed(stages.slope(n));
  }

  // The table's entries at scores 4 j to 4 j + 7, if j is even: pairs of rows, of both keys.
  __device__ __forceinline__ void load_entries(unsigned (&entries)[4], int n, int j) const {
    if (j % 2 == 0) load_transposed(entries, transposed(stages.table(n)) + j / 2 * 2048);
  }

  // Waits for what random dropout keeps of the step, which a KeptDrawer draws.
  __device__ __forceinline__ void wait_for_kept() const {
    wait(stages.drawn_full(steps), steps >> 2 & 1);
  }
  __device__ __forceinline__ void take_kept() {
    const unsigned thread = (thread_read_again() - 128) % (2 * S::kKeys);
    const float2 both = load_two(stages.drawn(steps) + thread * 8);
    kept[0] = __float_as_uint(both.x), kept[1] = __float_as_uint(both.y);
  }
};

}  // namespace kernels
