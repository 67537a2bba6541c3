// Items of the backward: blocks of keys, or parts of their steps.
#pragma once

#include "attn/backward_copier.cuh"
#include "attn/division.cuh"
#include "attn/sections.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// Finds an item by its number, and its steps.
template <class Base>
struct RowItems : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using ListWord = typename Base::ListWord;
  using Base::lists, Base::expressions, Base::set, Base::get, Base::pass_over, Base::kBlocks,
      Base::kStepsLeft, Base::kFirst;

  __device__ int parts() const {
    if constexpr (kDivides<C>) return lists.parts();
    return 0;
  }

  // The n-th item among those that are not parts. Units (heads of keys) of a batch follow each
  // other, or those of a head (kBatchesFirst).
  static __device__ Part whole(int n) {
    constexpr int kUnits = C::kKeyHeads * C::kBatches;
    const auto [number, place] = tile_in_sections<kUnits, C::kKeyBlocks, C::kSection, 0>(n);
    const int unit =
        C::kBatchesFirst ? number % C::kBatches * C::kKeyHeads + number / C::kBatches : number;
    const int list = unit / C::kKeyHeads * C::kListsOfBatch + unit % C::kKeyHeads * C::kListsOfHead;
    return {unit, list * C::kKeyBlocks + place, 0, 1};
  }

  // Number of divided blocks of keys that begin with item n or before.
  __device__ int divided_until(int n) const {
    int low = 0, high = lists.divided_blocks();
#pragma unroll 1
    while (low < high) {
      const int middle = (low + high) / 2;
      if (lists.divided_block(middle).item <= n)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  // The number of the part that item n is. If it is none: -1, and n becomes the number of its block
  // of keys among all.
  __device__ int part_in_order(int& n) const {
    const int blocks = divided_until(n);
    if (blocks == 0) return -1;
    const DividedBlock last = lists.divided_block(blocks - 1);
    const int parts = lists.part(last.part).parts;
    if (n < last.item + parts) return last.part + n - last.item;
    n -= last.part + parts - blocks;
    return -1;
  }

  // Sets the steps of the item, from the first on.
  __device__ void set_steps(int blocks, int first, int steps) const {
    set(kBlocks, blocks), set(kStepsLeft, steps);
    if constexpr (kDivides<C>) set(kFirst, first);
  }
  // Sets the steps of a part. Where lengths leave few steps, the first part has all, and others
  // take rows past the last one.
  __device__ void set_steps(const Part& of, int blocks) const {
    const int all = blocks * C::kHeadsOfKey;
    if (all < 2 * of.parts) {
      if (of.part > 0)
        set_steps(0, 0, 2);
      else
        set_steps(blocks, 0, all < 2 ? 2 : all);
      return;
    }
    const int steps = all / of.parts, more = all % of.parts;  // parts that have a step more
    set_steps(blocks, steps * of.part + (of.part < more ? of.part : more),
              of.part < more ? steps + 1 : steps);
  }

  // The rows before those of the first step. `head` is the first one of the unit.
  __device__ unsigned pass_to_first(int& head) const {
    const int first = get(kFirst);
    if (first == 0) return 0;
    const int of = C::kHeadsOutside ? get(kBlocks) : C::kHeadsOfKey;
    head += C::kHeadsOutside ? first / of : first % of;
    return pass_over(head, C::kHeadsOutside ? first % of : first / of);
  }

  // Whether keys are past the end of a packed sequence, where no gradient is stored.
  __device__ bool has_no_keys(const Tile& tile, int b) const {
    constexpr bool kPacked = C::Keys::kPacked && C::Values::kPacked;
    return kPacked && tile.tile * S::kKeys >= expressions.keys(b);
  }

  // Past the length nothing is read; a sequence without keys has a map of one.
  __device__ int first_key(const Tile& tile, int b) const {
    const int first = tile.tile * S::kKeys;
    return (C::kLengths || C::kPadded) && first >= expressions.used_keys(b) ? C::kColumns : first;
  }
};

}  // namespace kernels
