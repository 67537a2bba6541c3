// The thread of the backward kernel that copies: its layers, each of which uses those below it.
#pragma once

#include "attn/backward_copier.cuh"
#include "attn/backward_copies.cuh"
#include "attn/backward_items.cuh"
#include "attn/backward_row_lists.cuh"
#include "attn/which.cuh"

namespace kernels {

template <class C, class E, class L>
using RowsOfTile =
    typename Which<C::kBand, RowsOfBand<RowCopier<C, E, L>>, RowLists<RowCopier<C, E, L>>>::Type;
template <class C, class E, class L>
using RowCopierLayers = RowCopies<RowItems<RowsOfTile<C, E, L>>>;

template <class C, class E, class L>
struct RowProducer : RowCopierLayers<C, E, L> {
  using Base = RowCopierLayers<C, E, L>;
  using S = typename Base::S;
  using Base::kBlock, Base::kFirstKey, Base::kFirstRun, Base::kBlocksLeft, Base::kStepsLeft,
      Base::kUnit, Base::kTail;
  using Base::set, Base::get, Base::parts, Base::whole, Base::part_in_order, Base::has_no_keys,
      Base::first_key, Base::set_steps, Base::pass_to_first, Base::last_head, Base::blocks_of,
      Base::begin_list, Base::next_rows, Base::copy_queries, Base::copy_gradients, Base::copy_keys;
  using Base::stages, Base::tensors, Base::lists, Base::steps, Base::kFirstStep, Base::kLeastBlocks;

  __device__ void run() {
    static_assert(S::kStages == 2, "steps % 2");
    if constexpr (S::kClears) set(kTail, 0);
    int n = atomicAdd(tensors.counter, 1);
    while (n < C::kItems + parts()) {
      copy_item(n);
      n = atomicAdd(tensors.counter, 1);
    }
    wait(empty_of(stages.keys_full()), steps >> 31 ^ 1);
    store_shared(stages.item_words(), kEndOfStream);
    store_shared(stages.step_words(steps), kEndOfStream);
    arrive(stages.keys_full());
    if constexpr (C::kRandom)
      arrive(empty_of(stages.drawn_full(steps)));
    else if constexpr (S::kClears)
      stages.tails().end(get(kTail));
  }

  __device__ void copy_item(int n) {
    if constexpr (kPartsInOrder<C>) {
      const int part = part_in_order(n);
      const Part of = part < 0 ? whole(n) : lists.part(part);
      set(kUnit, part < 0 ? of.unit : part | kOfPart);
      copy_item(of, lists.tile(of.tile));
    } else if constexpr (kDivides<C>) {
      const int parts = lists.parts();
      const Part of = n < parts ? lists.part(n) : whole(n - parts);
      const Tile tile = lists.tile(of.tile);
      if (n >= parts && tile.blocks > lists.most()) return;
      set(kUnit, of.parts > 1 ? n | kOfPart : of.unit);
      copy_item(of, tile);
    } else {
      const Part of = whole(n);
      copy_item(of, lists.tile(of.tile));
    }
  }

  __device__ __forceinline__ void copy_item(const Part& of, const Tile& tile) {
    const int b = of.unit / C::kKeyHeads;
    if (has_no_keys(tile, b)) return;
    const int blocks = blocks_of(tile, of.unit);
    set(kBlock, tile.tile), set(kFirstKey, first_key(tile, b));
    set(kFirstRun, tile.first + (C::kOrdered ? tile.runs : 0));
    if (kDivides<C> && of.parts > 1)
      set_steps(of, blocks);
    else
      set_steps(blocks, 0, (blocks < kLeastBlocks ? kLeastBlocks : blocks) * C::kHeadsOfKey);
    int head = of.unit * C::kHeadsOfKey;
    begin_list();
    unsigned rows = kDivides<C> ? pass_to_first(head) : 0;
    rows = next_rows(head, rows);
    steps |= kFirstStep;
#pragma unroll 1
    for (;;) {
      copy_queries(head, rows);
      copy_gradients();
      // The stages of the first step are empty before those of the keys.
      if (steps & kFirstStep) copy_keys();
      const int left = get(kStepsLeft) - 1;
      if (left == 0) break;
      set(kStepsLeft, left);
      rows = load_shared(stages.step_words(steps)) & ~kTailBits, head = last_head();
      ++steps;
      if (C::kHeadsOutside && get(kBlocksLeft) > 0) {
        rows = next_rows(head, rows);
        continue;
      }
      if (++head % C::kHeadsOfKey == 0) head -= C::kHeadsOfKey;
      if (C::kHeadsOutside) begin_list();
      if (C::kHeadsOutside || head % C::kHeadsOfKey == 0) rows = next_rows(head, rows);
    }
    ++steps;
    steps ^= 1u << 31;
  }
};

}  // namespace kernels
