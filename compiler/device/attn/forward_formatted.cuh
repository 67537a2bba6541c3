// Threads of the forward kernel that load keys in rows of several types (formatted_rows.cuh), which
// hold their values: a warp group, for both products.
//
// Rows come one by one, from pages or as lists name them (block_loader.cuh), which says where they
// are. A thread holds its part of one block in registers; while that is stored into an empty stage,
// the next one is loaded, whose rows were found before:
//
//   found     1  2  3 ..
//   loaded    0  1  2 ..
//   stored       0  1 ..
#pragma once

#include "attn/formatted_rows.cuh"
#include "attn/forward_widening.cuh"

namespace kernels {

template <class Items>
struct FormattedProducer : StreamOfBlocks<Items> {
  using Base = StreamOfBlocks<Items>;
  using C = typename Base::C;
  using Item = typename Base::Item;
  using Rows = FormattedRows<C>;
  using Base::stages, Base::tensors, Base::key, Base::item, Base::blocks, Base::more, Base::fresh,
      Base::is_first;
  static_assert(C::kValuesOfKeys && C::kGatherKeys, "rows hold both, and come one by one");
  typename Base::KeyLoader loader;

  // What is known of a block.
  struct Known {
    bool exists, begins;  // begins: it is the first one of its item
    unsigned word;        // that tells consumers of it
    Item item;
  };

  __device__ void run() {
    this->prefetch_maps();
    if constexpr (C::kOverlaps) wait_for_launch();
    this->begin_stream();
    typename Rows::Places places;
    Known known = find_next(places);
    Rows rows;
    rows.load(places);
    while (known.exists) {
      if (known.begins) this->copy_queries(known.item);
      begin_stage(known.word);
      known = find_next(places);
      rows.exchange(typename C::Float{}, stages.key(key.stage), places);
      publish_writes();
      arrive(stages.key_full(key.stage));
      key.next();
    }
    begin_stage(kEndOfStream);
    arrive(stages.key_full(key.stage));
  }

 private:
  __device__ Known find_next(typename Rows::Places& places) {
#pragma unroll
    for (int step = 0; step < Rows::kSteps; ++step) places[step] = nullptr;
    if (!more) return {false};
    const int b = Base::batch_of_keys(item), head = item.unit * C::kPack / C::kHeadsOfKey;
    const int at = blocks.key;
    if constexpr (kLooksAhead<C>) {
      if (fresh) loader.begin();
    }
    loader.find(tensors, b, at, blocks.used);
#pragma unroll
    for (int step = 0; step < Rows::kSteps; ++step) {
      const int row = Rows::of_warp(step);
      places[step] = loader.address(tensors, row, at + Rows::of_block(step), head);
    }
    Known known{true, fresh, (unsigned)at, item};
    known.word |= Base::begin_block(blocks);
    this->end_block();
    return known;
  }
  // Waits for an empty stage, of whose block `word` tells the consumers.
  __device__ void begin_stage(unsigned word) const {
    wait(empty_of(stages.key_full(key.stage)), key.parity);
    if (is_first()) store_shared(stages.key_word(key.stage), word);
  }
};

}  // namespace kernels
