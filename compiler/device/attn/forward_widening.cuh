// Threads of the forward kernel that load keys and values of 8 bits, and widen them (kWidens): a
// warp group, or one for the keys and another one for the values (kWideners).
//
// All come row by row, wherever they are (widened_rows.cuh). A thread holds its part of kWideners
// blocks in registers, and has found the rows of the one behind them:
//
//   found       0  1  2  3   4   5  ..
//   loaded         0  1  2   3   4  ..
//   widened              0   1   2  ..        into stages, as they become empty
//
// Queries are copied when the first block of their tile is widened: before that, their stage may
// not be empty until blocks that are still to be widened have been computed.
#pragma once

#include "attn/forward_copies.cuh"
#include "attn/widened_rows.cuh"

namespace kernels {

// Rows of keys or values of a block: where they are.
template <class Side, class Rows>
struct RowsOfSide {
  static constexpr int kPage = Side::kPage;
  const unsigned char* rows;  // of the head
  long long page_stride, row_stride;
  int first;               // row of the tensor, or of the batch in pages
  int page[Rows::kSteps];  // of each row of this lane: 0 where there are no pages; -1: past the end

  // `keys`: of the batch.
  __device__ void find(const ForwardTensors& tensors, int b, int at, int head, int keys) {
    const PoolStrides by = Side::strides(tensors);
    rows = Side::bytes(tensors) + head * by.head;
    if constexpr (kPage == 0 && !Side::kThd) rows += b * by.page;
    page_stride = by.page, row_stride = by.row;
    first = at;
    if constexpr (Side::kThd) first += tensors.column_starts[b];
#pragma unroll
    for (int step = 0; step < Rows::kSteps; ++step) {
      const int row = at + Rows::row_at(step);
      page[step] = -1;
      if (Rows::has_row(step) && row < keys) page[step] = page_of(tensors, b, row);
    }
  }
  // Nothing is read of rows past the end, wherever they would be.
  __device__ void load(typename Rows::Raw& raw) const {
#pragma unroll
    for (int step = 0; step < Rows::kSteps; ++step) {
      const int row = first + Rows::row_at(step);
      const int in_page = kPage > 0 ? (unsigned)row % kPage : row;
      const unsigned char* from = rows + in_page * row_stride;
      if constexpr (kPage > 0) from += page[step] * page_stride;
      Rows::load(raw, step, from, page[step] >= 0);
    }
  }

  static __device__ int page_of(const ForwardTensors& tensors, int b, int row) {
    if constexpr (kPage > 0) return Side::table(tensors, b)[(unsigned)row / kPage];
    return 0;
  }
  // The scale of a row of the batch, on a page that page_of has found; 0 if there is no page.
  static __device__ float scale_of(const ForwardTensors& tensors, int b, int head, int row,
                                   int page) {
    if (page < 0) return 0;
    const int in_page = kPage > 0    ? (unsigned)row % kPage
                        : Side::kThd ? tensors.column_starts[b] + row
                                     : row;
    const int of = kPage > 0 || Side::kThd ? page : b;
    return Side::scales(tensors, head)[of * Side::kScalePage + in_page * Side::kScaleRow];
  }
};

// The blocks of a stream: of an item after another. Warp groups that widen take the same items.
template <class Items>
struct StreamOfBlocks : ForwardCopies<Items> {
  using Base = ForwardCopies<Items>;
  using Item = typename Base::Item;
  using Blocks = typename Base::Blocks;

  int number;  // of the item
  int taken;
  bool more;   // whether there is a block
  bool fresh;  // whether it is the first one of its item
  Item item;
  Blocks blocks;
  decltype(((Items*)nullptr)->read_item(0)) next;

  __device__ void begin_stream() {
    number = this->first_item();
    next = this->read_item(number);
    begin_item();
  }
  // After the block that `blocks` has begun with.
  __device__ void end_block() {
    Base::end_block(blocks);
    if (fresh) {
      number = this->next_item(number, this->known_to_all(taken));
      next = this->read_item(number);
      fresh = false;
    }
    if (blocks.left == 0) begin_item();
  }

 private:
  __device__ void begin_item() {
    item = this->item_of(next);
    more = this->is_item(number);
    if (!more) return;
    fresh = true;
    taken = this->is_first() ? this->take(number) : 0;
    blocks = this->blocks_of(item);
  }
};

// All threads of a warp group, which widens keys, or values, or both.
template <class Items, bool kOfKeys, bool kOfValues>
struct WideningProducer : StreamOfBlocks<Items> {
  using Base = StreamOfBlocks<Items>;
  using C = typename Base::C;
  using S = typename Base::S;
  using Item = typename Base::Item;
  using Base::stages, Base::tensors, Base::key, Base::value, Base::item, Base::blocks, Base::more,
      Base::fresh, Base::is_first;
  using KeyRows = typename S::KeyRows;
  using ValueRows = typename S::ValueRows;
  using Keys = RowsOfSide<KeySide<C>, KeyRows>;
  using Values = RowsOfSide<ValueSide<C>, ValueRows>;
  static constexpr bool kScales = kOfKeys && C::kTokenScales;

  // What is known of a block.
  struct Known {
    bool exists, begins;  // begins: it is the first one of its item
    unsigned word;        // that tells consumers of it
    Item item;
  };
  struct Held : Known {
    typename KeyRows::Raw keys;
    typename ValueRows::Raw values;
    float scales[2];  // of a key and of its value, with kScales
  };
  struct Found : Known {
    Keys keys;
    Values values;
    int row, pages[2];  // of the scales that this thread loads, with kScales
  };

  __device__ void run() {
    if (kOfKeys) this->prefetch_maps();
    if constexpr (C::kOverlaps) wait_for_launch();
    this->begin_stream();
    Found found;
    find_next(found);
    Held held[C::kWideners];
#pragma unroll
    for (int i = 0; i < C::kWideners; ++i) load_next(held[i], found);
    for (;;) {
#pragma unroll
      for (int i = 0; i < C::kWideners; ++i) {
        if (!held[i].exists) return end_stream();
        widen(held[i]);
        load_next(held[i], found);
      }
    }
  }

 private:
  static __device__ int head_of(const Item& item) { return item.unit * C::kPack / C::kHeadsOfKey; }

  __device__ void find_next(Found& found) {
    found.exists = more;
    if (!more) return;
    found.begins = fresh, found.item = item;
    const int b = Base::batch_of_keys(item), head = head_of(item);
    if constexpr (kOfKeys) found.keys.find(tensors, b, blocks.key, head, blocks.keys);
    if constexpr (kOfValues) found.values.find(tensors, b, blocks.key, head, blocks.used);
    if constexpr (kScales) find_scales(found, b);
    found.word = blocks.key;
    found.word |= Base::begin_block(blocks);
    this->end_block();
  }

  // Loads what is found, and finds what is behind it.
  __device__ void load_next(Held& held, Found& found) {
    (Known&)held = found;
    if (!found.exists) return;
    if constexpr (kOfKeys) found.keys.load(held.keys);
    if constexpr (kOfValues) found.values.load(held.values);
    if constexpr (kScales) load_scales(held, found);
    find_next(found);
  }

  __device__ void widen(const Held& held) {
    if constexpr (kOfKeys) widen_keys(held);
    if constexpr (kOfValues) widen_values(held);
  }
  __device__ void widen_keys(const Held& held) {
    if (held.begins) this->copy_queries(held.item);
    begin_keys(held.word);
    KeyRows::widen(typename C::Keys{}, typename C::Float{}, held.keys, stages.key(key.stage));
    if constexpr (kScales) store_scales(held);
    publish_writes();
    arrive(stages.key_full(key.stage));
    key.next();
  }
  __device__ void widen_values(const Held& held) {
    const unsigned full = stages.value_full(value.stage);
    wait(empty_of(full), value.parity);
    ValueRows::widen(typename C::Values{}, typename C::Float{}, held.values,
                     stages.value(value.stage));
    publish_writes();
    arrive(full);
    value.next();
  }
  // Waits for an empty stage of keys, of which `word` tells the consumers.
  __device__ void begin_keys(unsigned word) const {
    wait(empty_of(stages.key_full(key.stage)), key.parity);
    if (is_first()) store_shared(stages.key_word(key.stage), word);
  }
  // Keys say that there is no block behind.
  __device__ void end_stream() const {
    if constexpr (kOfKeys) {
      begin_keys(kEndOfStream);
      arrive(stages.key_full(key.stage));
    }
  }

  // Scales of the key, and of the value, that has the number of the thread.
  __device__ void find_scales(Found& found, int b) const {
    const int row = blocks.key + (int)threadIdx.x;
    found.row = row, found.pages[0] = found.pages[1] = -1;
    if (threadIdx.x >= C::kKeys) return;
    if (row < blocks.keys) found.pages[0] = Keys::page_of(tensors, b, row);
    if (row < blocks.used) found.pages[1] = Values::page_of(tensors, b, row);
  }
  __device__ void load_scales(Held& held, const Found& found) const {
    const int b = Base::batch_of_keys(found.item), head = head_of(found.item);
    held.scales[0] = Keys::scale_of(tensors, b, head, found.row, found.pages[0]);
    held.scales[1] = Values::scale_of(tensors, b, head, found.row, found.pages[1]);
  }
  // In the order of keys: those of keys, then those of values.
  __device__ void store_scales(const Held& held) const {
    if (threadIdx.x >= C::kKeys) return;
    const unsigned to = stages.scales(key.stage) + 4 * threadIdx.x;
    store_shared(to, __float_as_uint(held.scales[0]));
    store_shared(to + 4 * C::kKeys, __float_as_uint(held.scales[1]));
  }
};

}  // namespace kernels
