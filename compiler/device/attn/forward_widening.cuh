// Threads of the forward kernel that copy keys and values of 8 bits, and widen them (kWidens): a
// warp group has the keys, another one the values.
//
// All come row by row, wherever they are (widened_rows.cuh). A block is copied into one of kRaws
// places, and widened into a stage kRaws - 1 blocks later:
//
//   copied      0  1  2  3   4   5  ..
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
  __device__ void copy(unsigned to) const {
#pragma unroll
    for (int step = 0; step < Rows::kSteps; ++step) {
      const bool present = page[step] >= 0;
      const int row = first + Rows::row_at(step);
      const int in_page = kPage > 0 ? (unsigned)row % kPage : row;
      const unsigned char* from = rows + in_page * row_stride;
      if constexpr (kPage > 0) from += page[step] * page_stride;
      Rows::copy(to, step, from, present);
    }
  }

  static __device__ int page_of(const ForwardTensors& tensors, int b, int row) {
    if constexpr (kPage > 0) return Side::table(tensors, b)[(unsigned)row / kPage];
    return 0;
  }
  // Copies the scale of a row of the batch, or 0.
  static __device__ void copy_scale(unsigned to, const ForwardTensors& tensors, int b, int head,
                                    int row, bool has) {
    const float* from = Side::scales(tensors, head);
    if (has) {
      const int in_page = kPage > 0    ? (unsigned)row % kPage
                          : Side::kThd ? tensors.column_starts[b] + row
                                       : row;
      const int page = kPage > 0 || Side::kThd ? page_of(tensors, b, row) : b;
      from += page * Side::kScalePage + in_page * Side::kScaleRow;
    }
    copy_word(to, from, has);
  }
};

// A warp group that widens keys, or values.
template <class Base, bool kOfKeys>
struct WideningCopies : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using Item = typename Base::Item;
  using Blocks = typename Base::Blocks;
  using Base::stages, Base::tensors, Base::key, Base::value, Base::is_first;
  using Side = typename Which<kOfKeys, KeySide<C>, ValueSide<C>>::Type;
  using Rows = typename Which<kOfKeys, typename S::KeyRows, typename S::ValueRows>::Type;
  using Type = typename Which<kOfKeys, typename C::Keys, typename C::Values>::Type;

  Turn<C::kRaws> copied{}, widened{};
  int waiting = 0;         // blocks that are copied, and not widened
  Item item_of_queries{};  // whose first block is not widened,
  int blocks_before = -1;  // nor as many before it; -1: it is

  // The group with values goes as far as that with keys: consumers may need them before the stage
  // of queries is empty, and both wait for each other where an item begins.
  __device__ void begin_item(const Item& item) {
    while (blocks_before >= 0) widen_oldest<0>();
    item_of_queries = item, blocks_before = waiting;
  }

  // The rows of the next block.
  using Found = RowsOfSide<Side, Rows>;
  __device__ void find(const Item& item, const Blocks& blocks, Found& found) const {
    found.find(tensors, Base::batch_of_keys(item), blocks.key, head_of(item),
               kOfKeys ? blocks.keys : blocks.used);
  }

  // Copies the next block, which is `found`; finds the one behind it.
  __device__ void copy_block(const Item& item, Blocks& blocks, Found& found) {
    if (waiting == C::kRaws) widen_oldest<C::kRaws - 1>();
    const int at = blocks.key;
    const unsigned flags = Base::begin_block(blocks);
    if (kOfKeys && is_first()) store_shared(stages.raw_word(copied.stage), at | flags);
    const unsigned to = raw_of(copied.stage);
    found.copy(to);
    if constexpr (kOfKeys && C::kTokenScales) copy_scales(item, blocks, at);
    commit_copies();
    copied.next();
    ++waiting;
    Base::end_block(blocks);
    if (blocks.left > 0) find(item, blocks, found);
  }

  // Widens all blocks; keys say that there is none after them.
  __device__ void finish_blocks() {
    while (waiting > 0) widen_oldest<0>();
    if constexpr (kOfKeys) {
      begin_keys(kEndOfStream);
      arrive(stages.key_full(key.stage));
    }
  }

 private:
  static __device__ int head_of(const Item& item) { return item.unit * C::kPack / C::kHeadsOfKey; }
  __device__ unsigned raw_of(int stage) const {
    return stages.raw(stage) + (kOfKeys ? 0 : S::KeyRows::kBytes);
  }

  // kLater: copies of as many blocks may still be on their way.
  template <int kLater>
  __device__ void widen_oldest() {
    wait_for_copies<kLater>();
    const bool begins = blocks_before >= 0 && blocks_before-- == 0;
    if constexpr (kOfKeys) {
      if (begins) this->copy_queries(item_of_queries);
      widen_keys();
    } else {
      widen_values();
    }
    widened.next();
    --waiting;
  }
  __device__ void widen_keys() {
    begin_keys(is_first() ? load_shared(stages.raw_word(widened.stage)) : 0);
    Rows::widen(Type{}, typename C::Float{}, raw_of(widened.stage), stages.key(key.stage));
    if constexpr (C::kTokenScales) order_scales(scales_of(widened.stage));
    publish_writes();
    arrive(stages.key_full(key.stage));
    key.next();
  }
  __device__ void widen_values() {
    const unsigned full = stages.value_full(value.stage);
    wait(empty_of(full), value.parity);
    Rows::widen(Type{}, typename C::Float{}, raw_of(widened.stage), stages.value(value.stage));
    publish_writes();
    arrive(full);
    value.next();
  }
  // Waits for an empty stage of keys, of which `word` tells the consumers.
  __device__ void begin_keys(unsigned word) const {
    wait(empty_of(stages.key_full(key.stage)), key.parity);
    if (is_first()) store_shared(stages.key_word(key.stage), word);
  }

  // Scales of a block as threads copied them: those of a key and of its value each.
  __device__ unsigned scales_of(int stage) const {
    return stages.raw(stage) + S::kRawBytes - S::kRawScales + 8 * threadIdx.x;
  }
  __device__ void copy_scales(const Item& item, const Blocks& blocks, int at) const {
    if (threadIdx.x >= C::kKeys) return;
    const int b = Base::batch_of_keys(item), head = head_of(item), row = at + (int)threadIdx.x;
    const unsigned to = scales_of(copied.stage);
    using Keys = RowsOfSide<KeySide<C>, typename S::KeyRows>;
    using Values = RowsOfSide<ValueSide<C>, typename S::ValueRows>;
    Keys::copy_scale(to, tensors, b, head, row, row < blocks.keys);
    Values::copy_scale(to + 4, tensors, b, head, row, row < blocks.used);
  }
  // Stores the scales that this thread copied: those of keys, then those of values.
  __device__ void order_scales(unsigned from) const {
    if (threadIdx.x >= C::kKeys) return;
    const unsigned to = stages.scales(key.stage) + 4 * threadIdx.x;
    const float2 both = load_two(from);
    store_shared(to, __float_as_uint(both.x));
    store_shared(to + 4 * C::kKeys, __float_as_uint(both.y));
  }
};

// All threads of a warp group; both take the same items.
template <class Items, bool kOfKeys>
struct WideningProducer : WideningCopies<ForwardCopies<Items>, kOfKeys> {
  using Base = WideningCopies<ForwardCopies<Items>, kOfKeys>;
  using C = typename Base::C;
  using Item = typename Base::Item;
  using Blocks = typename Base::Blocks;
  using Base::first_item, Base::is_item, Base::take, Base::next_item, Base::read_item,
      Base::item_of, Base::blocks_of, Base::is_first, Base::known_to_all;

  __device__ void run() {
    if (kOfKeys) this->prefetch_maps();
    if constexpr (C::kOverlaps) wait_for_launch();
    int n = first_item();
    Item item = item_of(read_item(n));
    while (is_item(n)) {
      const int taken = is_first() ? take(n) : 0;
      this->begin_item(item);
      Blocks blocks = blocks_of(item);
      typename Base::Found found;
      this->find(item, blocks, found);
      this->copy_block(item, blocks, found);
      n = next_item(n, known_to_all(taken));
      const auto next = read_item(n);
      while (blocks.left > 0) this->copy_block(item, blocks, found);
      item = item_of(next);
    }
    this->finish_blocks();
  }
};

}  // namespace kernels
