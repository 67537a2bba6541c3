// Threads of the forward kernel that copy keys and values of 8 bits, and widen them (kWidens).
//
// All keys and values come row by row, wherever they are (widened_rows.cuh). A block is copied into
// one of kRaws places, and widened into the stages of keys and of values kRaws - 1 blocks later:
//
//   copied      0  1  2  3        4        5  ..
//   widened              K0 V0    K1 V1    ..        into stages, as they become empty
//
// Queries are copied when the first block of their tile is widened: before that, their stage may
// not be empty until blocks that are still to be widened have been computed.
#pragma once

#include "attn/forward_copies.cuh"
#include "attn/widened_rows.cuh"

namespace kernels {

// Rows of keys or values of a batch: where a block is.
template <class C, class Side>
struct RowsOfSide {
  static constexpr int kPage = Side::kPage;
  const unsigned char* rows;  // of the head
  long long page_stride, row_stride;
  int page;   // of row n of the warp, for lane n; -1: past the end
  int first;  // the number of the block's first row

  // `keys`: of the batch. Pages have numbers; so have batches; packed rows have neither.
  template <class Rows>
  __device__ void find(const ForwardTensors& tensors, int b, int at, int head, int keys) {
    const PoolStrides by = Side::strides(tensors);
    rows = Side::bytes(tensors) + head * by.head;
    page_stride = by.page, row_stride = by.row;
    first = at;
    if constexpr (Side::kThd) first += tensors.column_starts[b];
    const int n = threadIdx.x % 32, row = at + Rows::row_of(n);
    page = -1;
    if (n >= Rows::kRowsOfWarp || row >= keys) return;
    if constexpr (kPage > 0)
      page = Side::table(tensors, b)[row / kPage];
    else
      page = Side::kThd ? 0 : b;
  }
  __device__ long long in_page(int row) const {
    return kPage > 0 ? (first + row) % kPage : first + row;
  }
  // Copies the scale of the row that this thread looked up.
  __device__ void copy_scale(unsigned to, const ForwardTensors& tensors, int head, int row) const {
    const float* from = Side::scales(tensors, head);
    const bool has = page >= 0;
    if (has) from += page * Side::kScalePage + in_page(row) * Side::kScaleRow;
    copy_word(to, from, has);
  }
  template <class Rows>
  __device__ void copy(unsigned to) const {
    Rows::copy(to, rows, page, page_stride, row_stride, [this](int row) { return in_page(row); });
  }
};

template <class Base>
struct WideningCopies : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using Item = typename Base::Item;
  using Blocks = typename Base::Blocks;
  using Base::stages, Base::tensors, Base::key, Base::value, Base::is_first;
  using KeyRows = typename S::KeyRows;
  using ValueRows = typename S::ValueRows;

  Turn<C::kRaws> copied{}, widened{};
  int waiting = 0;         // blocks that are copied, and not widened
  Item item_of_queries{};  // whose queries are to be copied,
  int blocks_before = -1;  // when so many blocks more are widened; -1: none are

  __device__ void begin_item(const Item& item) {
    while (blocks_before >= 0) widen_oldest<0>();
    item_of_queries = item, blocks_before = waiting;
  }

  __device__ void copy_block(const Item& item, Blocks& blocks) {
    if (waiting == C::kRaws) widen_oldest<C::kRaws - 1>();
    const int at = blocks.key, head = item.unit * C::kPack / C::kHeadsOfKey;
    const int b = Base::batch_of_keys(item);
    const unsigned flags = Base::begin_block(blocks);
    if (is_first()) store_shared(stages.raw_word(copied.stage), at | flags);
    const unsigned to = stages.raw(copied.stage);
    RowsOfSide<C, KeySide<C>> keys;
    keys.template find<KeyRows>(tensors, b, at, head, blocks.keys);
    RowsOfSide<C, ValueSide<C>> values;
    values.template find<ValueRows>(tensors, b, at, head, blocks.used);
    keys.template copy<KeyRows>(to);
    values.template copy<ValueRows>(to + KeyRows::kBytes);
    if constexpr (C::kTokenScales) {
      const unsigned scales = to + S::kRawBytes - S::kRawScales + 8 * threadIdx.x;
      const int row = KeyRows::row_of(threadIdx.x % 32);
      keys.copy_scale(scales, tensors, head, row);
      values.copy_scale(scales + 4, tensors, head, row);
    }
    commit_copies();
    copied.next();
    ++waiting;
    Base::end_block(blocks);
  }

  // Widens all blocks, and says that there is none after them.
  __device__ void finish_blocks() {
    while (waiting > 0) widen_oldest<0>();
    begin_keys(kEndOfStream);
    arrive(stages.key_full(key.stage));
  }

 private:
  // kLater: copies of as many blocks may still be on their way.
  template <int kLater>
  __device__ void widen_oldest() {
    wait_for_copies<kLater>();
    if (blocks_before >= 0 && blocks_before-- == 0) this->copy_queries(item_of_queries);
    const unsigned from = stages.raw(widened.stage);
    begin_keys(is_first() ? load_shared(stages.raw_word(widened.stage)) : 0);
    KeyRows::widen(typename C::Keys{}, typename C::Float{}, from, stages.key(key.stage));
    if constexpr (C::kTokenScales) order_scales(from + S::kRawBytes - S::kRawScales);
    publish_writes();
    arrive(stages.key_full(key.stage));
    key.next();
    const unsigned full = stages.value_full(value.stage);
    wait(empty_of(full), value.parity);
    ValueRows::widen(typename C::Values{}, typename C::Float{}, from + KeyRows::kBytes,
                     stages.value(value.stage));
    publish_writes();
    arrive(full);
    value.next();
    widened.next();
    --waiting;
  }
  // Stores the scales that this thread copied in the order of keys.
  __device__ void order_scales(unsigned from) const {
    const int n = threadIdx.x % 32;
    if (n >= KeyRows::kRowsOfWarp) return;
    const unsigned to = stages.scales(key.stage) + 4 * KeyRows::row_of(n);
    const float2 both = load_two(from + 8 * threadIdx.x);
    store_shared(to, __float_as_uint(both.x));
    store_shared(to + 4 * C::kKeys, __float_as_uint(both.y));
  }
  // Waits for an empty stage of keys, of which `word` tells the consumers.
  __device__ void begin_keys(unsigned word) const {
    wait(empty_of(stages.key_full(key.stage)), key.parity);
    if (is_first()) store_shared(stages.key_word(key.stage), word);
  }
};

// All threads of a warp group.
template <class Items>
struct WideningProducer : WideningCopies<ForwardCopies<Items>> {
  using Base = WideningCopies<ForwardCopies<Items>>;
  using C = typename Base::C;
  using Item = typename Base::Item;
  using Blocks = typename Base::Blocks;
  using Base::first_item, Base::is_item, Base::take, Base::next_item, Base::read_item,
      Base::item_of, Base::blocks_of, Base::is_first, Base::known_to_all;

  __device__ void run() {
    this->prefetch_maps();
    if constexpr (C::kOverlaps) wait_for_launch();
    int n = first_item();
    Item item = item_of(read_item(n));
    while (is_item(n)) {
      const int taken = is_first() ? take(n) : 0;
      this->begin_item(item);
      Blocks blocks = blocks_of(item);
      this->copy_block(item, blocks);
      n = next_item(n, known_to_all(taken));
      const auto next = read_item(n);
      while (blocks.left > 0) this->copy_block(item, blocks);
      item = item_of(next);
    }
    this->finish_blocks();
  }
};

}  // namespace kernels
