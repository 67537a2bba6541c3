// The order of the backward's steps: items, and the rows of each, of all heads that share its keys.
#pragma once

#include "attn/backward_copier.cuh"
#include "attn/backward_items.cuh"
#include "attn/backward_row_lists.cuh"
#include "attn/which.cuh"

namespace kernels {

// Goes from step to step. `head`: counted over all batches.
template <class Base>
struct RowSteps : Base {
  using C = typename Base::C;
  using Base::kBlock, Base::kFirstKey, Base::kFirstRun, Base::kBlocksLeft, Base::kUnit,
      Base::kLeastBlocks;
  using Base::lists;
  using Base::set, Base::get, Base::parts, Base::whole, Base::part_in_order, Base::first_key,
      Base::set_steps, Base::pass_to_first, Base::blocks_of, Base::begin_list, Base::next_rows;

  // Calls go(part, tile) with item n, unless it is one whose parts are other items.
  template <typename Go>
  __device__ __forceinline__ void with_item(int n, const Go& go) const {
    if constexpr (kPartsInOrder<C>) {
      const int part = part_in_order(n);
      const Part of = part < 0 ? whole(n) : lists.part(part);
      set(kUnit, part < 0 ? of.unit : part | kOfPart);
      go(of, lists.tile(of.tile));
    } else if constexpr (kDivides<C>) {
      const int parts = lists.parts();
      const Part of = n < parts ? lists.part(n) : whole(n - parts);
      const Tile tile = lists.tile(of.tile);
      if (n >= parts && tile.blocks > lists.most()) return;
      set(kUnit, of.parts > 1 ? n | kOfPart : of.unit);
      go(of, tile);
    } else {
      const Part of = whole(n);
      go(of, lists.tile(of.tile));
    }
  }

  // Begins with the steps of an item: returns the rows of the first one, and sets its head.
  __device__ __forceinline__ unsigned first_step(const Part& of, const Tile& tile,
                                                 int& head) const {
    const int b = of.unit / C::kKeyHeads;
    const int blocks = blocks_of(tile, of.unit);
    set(kBlock, tile.tile), set(kFirstKey, first_key(tile, b));
    set(kFirstRun, tile.first + (C::kOrdered ? tile.runs : 0));
    if (kDivides<C> && of.parts > 1)
      set_steps(of, blocks);
    else
      set_steps(blocks, 0, (blocks < kLeastBlocks ? kLeastBlocks : blocks) * C::kHeadsOfKey);
    head = of.unit * C::kHeadsOfKey;
    begin_list();
    const unsigned rows = kDivides<C> ? pass_to_first(head) : 0;
    return next_rows(head, rows);
  }

  // Goes on from the rows and the head of a step.
  __device__ __forceinline__ void next_step(unsigned& rows, int& head) const {
    if (C::kHeadsOutside && get(kBlocksLeft) > 0) {
      rows = next_rows(head, rows);
      return;
    }
    if (++head % C::kHeadsOfKey == 0) head -= C::kHeadsOfKey;
    if (C::kHeadsOutside) begin_list();
    if (C::kHeadsOutside || head % C::kHeadsOfKey == 0) rows = next_rows(head, rows);
  }
};

template <class C, class E, class L>
using RowsOfTile =
    typename Which<C::kBand, RowsOfBand<RowCopier<C, E, L>>, RowLists<RowCopier<C, E, L>>>::Type;
template <class C, class E, class L>
using StepsOfRows = RowSteps<RowItems<RowsOfTile<C, E, L>>>;

}  // namespace kernels
