// Copies of values by the forward: those of the block before, and tails past the length.
#pragma once

#include "attn/forward_copier.cuh"
#include "attn/tails.cuh"

namespace kernels {

// 8-bit floats: the keys of a column are adjacent.
template <class Base>
struct ValueCopiesOf8Bits : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using BlockPlace = typename Base::BlockPlace;
  using Base::stages, Base::tensors, Base::value, Base::value_key, Base::kNoKey, Base::value_head,
      Base::value_batch, Base::kLanes, Base::is_first;

  __device__ void keep_values(const BlockPlace& at, int head, int) {
    value_key = at.row, value_head = head, value_batch = at.last;
  }

  // Panels have adjacent keys.
  __device__ void copy_values() {
    if (value_key == kNoKey) return;
    const unsigned full = stages.value_full(value.stage);
    wait(empty_of(full), value.parity);
    if (is_first()) {
      arrive_expecting(full, S::kValueBytes);
      for (int panel = 0; panel < S::kWidthPanels; ++panel) {
        copy_box(stages.value(value.stage) + panel * S::kValuePanel, *tensors.v, full,
                 value_key + panel * C::kWidthPanel, 0, value_head, value_batch);
      }
    }
    if (kLanes > 1) __syncwarp();  // as BlockRows::copy
    value.next();
  }
};

// 16-bit floats.
template <class Base>
struct ValueCopiesOf16Bits : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using BlockPlace = typename Base::BlockPlace;
  using ValueLoader = typename Base::ValueLoader;
  using Base::stages, Base::tensors, Base::value, Base::value_key, Base::kNoKey, Base::value_head,
      Base::value_batch, Base::value_keys, Base::tails, Base::kClearsLater, Base::is_first,
      Base::takes_part;

  // The block at that place, of a batch of which so many count, is to be copied later.
  __device__ void keep_values(const BlockPlace& at, int head, int used) {
    value_key = at.row, value_head = head, value_batch = at.last, value_keys = used;
  }

  __device__ void copy_values() {
    if (value_key == kNoKey || !takes_part(C::kGatherValues)) return;
    unsigned full = stages.value_full(value.stage);
    ValueLoader rows;
    rows.find(tensors, value_batch, value_key, value_keys);
    // Read before the wait: it would delay the copies.
    const bool tail = has_tail();
    wait(empty_of(full), value.parity);
    if (tail) {
      full = announce_tail();
    } else if (is_first()) {
      if (C::kGatherValues)
        arrive(full);
      else
        arrive_expecting(full, S::kValueBytes);
    }
    rows.copy(stages.value(value.stage), tensors, full, value_key, value_head, value_batch);
    if (tail) end_tail();
    value.next();
  }

  // Whether rows of the values to come are past the length, but in the tensor, or in a page.
  __device__ bool has_tail() const {
    if constexpr (!S::kClears) return false;
    return value_keys - value_key < C::kKeys && value_key < C::kColumns &&
           (C::kValuePage > 0 || value_keys < C::kColumns);
  }
  // Returns the barrier for the copies.
  __device__ unsigned announce_tail() const {
    if constexpr (!S::kClears)
      return 0;
    else {
      if (is_first()) stages.tails().announce(tails, tail(), S::kValueBytes);
      return stages.tails().barrier(tails);
    }
  }
  __device__ Tail tail() const {
    const unsigned full = stages.value_full(value.stage), first = stages.value(value.stage);
    const int rows = max(value_keys - value_key, 0);
    if constexpr (!C::kGroupedValues) {
      const unsigned before = rows * S::kValueRow;
      return {full, first + before, S::kValuePanel - before, S::kWidthPanels, S::kValuePanel, 0};
    }
    const unsigned of_group = rows % 8 * S::kValueRow, groups = rows / 8 * S::kValueGroup;
    return {full,
            first + groups + of_group,
            8 * S::kValueRow - of_group,
            S::kWidthPanels,
            S::kValuePanelStride,
            S::kValueBytes - groups - S::kValueGroup};
  }
  __device__ void end_tail() {
    if constexpr (S::kClears && !kClearsLater) stages.tails().clear(tails);
    ++tails;
  }
};

}  // namespace kernels
