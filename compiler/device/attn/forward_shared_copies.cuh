// Copies of blocks whose keys hold their values: the values are the first columns of the keys
// (kValuesOfKeys), and one stage serves both products.
#pragma once

#include "attn/forward_value_copies.cuh"

namespace kernels {

// A stage is empty when the product with its values has read it, which comes a block later than
// that with its keys: so there are three stages at least. Rows past the length are cleared as those
// of values are (tails.cuh), in all panels of the values.
template <class Base>
struct CopiesOfBoth : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using Item = typename Base::Item;
  using Blocks = typename Base::Blocks;
  using KeyLoader = typename Base::KeyLoader;
  using Base::stages, Base::tensors, Base::key, Base::value, Base::value_key, Base::kNoKey,
      Base::is_first, Base::takes_part, Base::keep_values, Base::has_tail, Base::announce_tail,
      Base::end_tail, Base::copy_table;
  static_assert(C::kStages > 2, "a step waits for the next keys before it has read all values");
  KeyLoader rows;

  // The next block of a tile, of batch `b` and a head of keys, of which `word` tells the consumers.
  __device__ void copy_both(const Item& item, Blocks& blocks, int head, int b, unsigned word) {
    const int at = blocks.key;
    if (takes_part(C::kGatherKeys)) copy_stage(b, at, head, word, blocks.used);
    key.next();
    if constexpr (C::kTables > 0) {
      if (takes_part(false)) copy_table(item, at);
    }
    Base::end_block(blocks);
  }

  // Copies a block of a batch of which `used` rows count: others are hidden.
  __device__ void copy_stage(int b, int first, int head, unsigned word, int used) {
    const auto at = Base::template place_of<C::kThdK>(b, first, used);
    unsigned full = stages.key_full(key.stage);
    if constexpr (kLooksAhead<C>) {
      if (word & kFirstOfTile) rows.begin();
    }
    rows.find(tensors, at.last, at.row, used);
    keep_values(at, head, used);
    const bool tail = has_tail();
    wait(empty_of(full), key.parity);
    if (is_first()) store_shared(stages.key_word(key.stage), word);
    if (tail) {
      full = announce_tail();
    } else if (is_first()) {
      if (C::kGatherKeys)
        arrive(full);
      else
        arrive_expecting(full, S::kKeyBytes);
    }
    rows.copy(stages.key(key.stage), tensors, full, at.row, head, at.last);
    if (tail) end_tail();
    value.next();
    value_key = kNoKey;  // nothing is left for later
  }
};

}  // namespace kernels
