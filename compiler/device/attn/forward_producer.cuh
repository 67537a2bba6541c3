// Threads of the forward kernel that copy: their layers, each of which uses those below it.
#pragma once

#include "attn/forward_copier.cuh"
#include "attn/forward_copies.cuh"
#include "attn/forward_items.cuh"
#include "attn/forward_shared_copies.cuh"
#include "attn/forward_value_copies.cuh"
#include "attn/which.cuh"

namespace kernels {

template <class C, class E, class L>
struct CopierLayers {
  using Thread = ForwardCopier<C, E, L>;
  using Tiles = ForwardTiles<Thread>;
  using Blocks =
      FollowingBlocks<typename Which<C::kBand, BlocksOfBand<Tiles>, ListedBlocks<Tiles>>::Type>;
  using Items = typename Which<C::kScheduled, ScheduledItems<Blocks>, NumberedItems<Blocks>>::Type;
  using Copies = ForwardCopies<Items>;
  using Later = typename Which<Stages<C>::kOf8Bits, ValueCopiesOf8Bits<Copies>,
                               ValueCopiesOf16Bits<Copies>>::Type;
  using Values = typename Which<C::kValuesOfKeys, CopiesOfBoth<Later>, Later>::Type;
};

template <class C, class E, class L>
struct Producer : CopierLayers<C, E, L>::Values {
  using Base = typename CopierLayers<C, E, L>::Values;
  using Item = typename Base::Item;
  using Blocks = typename Base::Blocks;
  using Base::first_item, Base::is_item, Base::take, Base::next_item, Base::read_item,
      Base::item_of;
  using Base::is_first, Base::takes_part, Base::known_to_all, Base::blocks_of, Base::prefetch_maps,
      Base::copy_queries, Base::copy_keys, Base::copy_table, Base::copy_values, Base::keep_values;
  using Base::stages, Base::key, Base::tails, Base::kThreads, Base::kGathers, Base::kClearsLater;

  // Blocks that are copied before the number of the next item is waited for: all of a short part.
  // Threads with few registers do not count.
  static constexpr int kAhead = C::kGroups * C::kShares > 1 ? 1 : C::kStages < 4 ? C::kStages : 4;

  __device__ void run() {
    prefetch_maps();
    if constexpr (C::kOverlaps) wait_for_launch();
    int n = first_item();
    Item item = item_of(read_item(n));
    while (is_item(n)) {
      const int taken = is_first() ? take(n) : 0;
      copy_queries(item);
      Blocks blocks = blocks_of(item);
      const int later = blocks.left - kAhead;
      do {
        copy_block(item, blocks);
      } while (kAhead > 1 && blocks.left > 0 && blocks.left > later);
      // The item is known by now, and so is the next one when it is needed.
      n = next_item(n, known_to_all(taken));
      const auto next = read_item(n);
      while (blocks.left > 0) copy_block(item, blocks);
      item = item_of(next);
    }
    if (takes_part(C::kGatherKeys)) wait(empty_of(stages.key_full(key.stage)), key.parity);
    if (is_first()) {
      store_shared(stages.key_word(key.stage), kEndOfStream);
      arrive(stages.key_full(key.stage));
    }
    if (C::kGatherKeys) arrive_with_copies(stages.key_full(key.stage));
    copy_values();
    if constexpr (kClearsLater) {
      if (is_first()) stages.tails().end(tails);
    }
    if (kGathers) finish_copies();
  }

  // The values of a block come after the keys of the next, or with their keys.
  __device__ void copy_block(const Item& item, Blocks& blocks) {
    const int at = blocks.key, head = item.unit * C::kPack / C::kHeadsOfKey;
    const unsigned flags = Base::begin_block(blocks);
    const int b = Base::batch_of_keys(item);
    if constexpr (C::kValuesOfKeys) return this->copy_both(item, blocks, head, b, at | flags);
    const auto place = Base::template place_of<C::kThdK>(b, at, blocks.keys);
    if (takes_part(C::kGatherKeys)) copy_keys(place, head, at | flags, blocks.keys);
    key.next();
    if constexpr (C::kTables > 0) {
      if (takes_part(false)) copy_table(item, at);
    }
    copy_values();
    // The same place, where it is: threads that copy have few registers.
    constexpr bool kSame = C::kThdK == C::kThdV && !(C::kThdV && C::kPadded);
    if constexpr (kSame)
      keep_values(place, head, blocks.used);
    else
      keep_values(Base::template place_of<C::kThdV>(b, at, blocks.used), head, blocks.used);
    Base::end_block(blocks);
  }
};

}  // namespace kernels
