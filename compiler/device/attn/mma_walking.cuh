// The forward by warps (mma_forward.cuh) of many short items: a block of threads has as many as
// others, one after another, and copies the first keys and the queries of the next one while it
// computes the last keys of this one. Items of the same rows of a head, of all batches, follow each
// other, so that the rows of a table which these have in common stay in shared memory.
//
//   copies      Q K0 V0 | K1 V1            | Q' K0' V0'       | K1' V1'            | ..
//   products            | S0       O+=P0 V0| S1       O+=P1 V1| S0'      O'+=P0' V0'| ..
#pragma once

#include "attn/mma_forward.cuh"

namespace kernels {

// Copies items, and their blocks of keys.
template <class Base>
struct CopiesOfItems : Base {
  using C = typename Base::C;
  using Base::item, Base::blocks;

  int number, end;     // of the item that is copied, and of the one after all
  int queries = 0;     // the stage of its queries
  bool begun = false;  // whether its queries are on their way

  // Blocks of threads have as many items, or one more.
  static __device__ int first_of(int block) {
    return (int)((long long)C::kItems * block / gridDim.x);
  }

  // False if there is none.
  __device__ bool begin() {
    number = first_of(blockIdx.x), end = first_of(blockIdx.x + 1);
    if (number >= end) return false;
    find();
    return true;
  }
  // Copies the next block of keys to a stage, with the queries of its item if it is the first.
  // Returns its word.
  __device__ unsigned copy_block(int stage) {
    if (blocks.left == 0) {
      if (number + 1 >= end) return kEndOfStream;
      ++number, begun = false, queries ^= 1;
      find();
    }
    if (!begun) Base::copy_queries(queries);
    begun = true;
    const unsigned word = Base::copy_keys(stage);
    Base::copy_values(stage);
    return word;
  }
  // As tell_tile, of any item.
  __device__ void tell_item(int n, unsigned (&words)[2]) const {
    const auto of = Base::item_of(Base::read_item(unknown(n)));
    words[0] = of.b * C::kUnits + of.unit;
    words[1] = of.tile.tile;
  }

 private:
  __device__ void find() {
    item = Base::item_of(Base::read_item(number));
    blocks = Base::blocks_of(item);
  }
};

// The rows of a table that a tile reads, of all columns, in panels as TMA brings them.
template <class C>
struct RowsOfTable {
  using S = Stages<C>;
  static constexpr int kThreads = 128 * C::kGroups / C::kStrips;

  const S stages;
  const ForwardTensors& tensors;
  int head = -1, tile = -1;  // whose rows are there

  // All threads of a block call it, when none reads what is there; they have met when it returns.
  __device__ __forceinline__ void hold(int unit, int of_tile) {
    const int of_head = C::kTableOfUnit ? unit : 0;
    if (of_head == head && of_tile == tile) return;
    head = of_head, tile = of_tile;
    const unsigned short* const from = tensors.table_rows + head * (long long)C::kTableHead +
                                       (long long)tile * C::kRowsOfTile * C::kTableRow;
    const int rows = C::kRows - tile * C::kRowsOfTile;
    if constexpr (C::kTableRow % 8 == 0)
      copy_vectors(from, rows);
    else
      copy_pairs(from, rows);
    __syncthreads();
  }

 private:
  static constexpr int kColumns = S::kTablePanels * 64;

  // Rows begin at multiples of 16 bytes.
  __device__ __forceinline__ void copy_vectors(const unsigned short* from, int rows) const {
    for (int i = (int)threadIdx.x; i < C::kRowsOfTile * (kColumns / 8); i += kThreads) {
      const int row = i / (kColumns / 8), column = i % (kColumns / 8) * 8;
      copy_vector(word_of(row, column), from + (long long)row * C::kTableRow + column,
                  row < rows && column < C::kColumns);
    }
    commit_copies();
    wait_for_copies<0>();
  }
  __device__ __forceinline__ void copy_pairs(const unsigned short* from, int rows) const {
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < C::kRowsOfTile * (kColumns / 2); i += kThreads) {
      const int row = i / (kColumns / 2), column = i % (kColumns / 2) * 2;
      const unsigned short* const at = from + (long long)row * C::kTableRow + column;
      const unsigned low = row < rows && column < C::kColumns ? at[0] : 0u;
      const unsigned high = row < rows && column + 1 < C::kColumns ? at[1] : 0u;
      store_shared(word_of(row, column), low | high << 16);
    }
  }
  // Where HeldTable reads it.
  __device__ unsigned word_of(int row, int column) const {
    return stages.table(0) + column / 64 * S::kTablePanel + row * 128 +
           ((column / 8 ^ row) & 7) * 16 + column % 8 * 2;
  }
};

// A thread: as ThreadOfWarp, of several items.
template <class C, class E, class Copies>
struct WalkingThread {
  using Strip = StripOfRows<C, E>;
  using Rows = Strips<Strip, C::kStrips>;
  static_assert(C::kStages == 2 && C::kQueries == 2, "what is copied, and what is computed");

  Copies& copies;
  RowsOfTable<C> table;
  Rows rows;
  const ProductsOfWarp<C, Rows> products;
  int number;       // of the item that is computed
  int queries = 0;  // the stage of its queries

  __device__ __forceinline__ WalkingThread(Copies& copies_)
      : copies(copies_),
        table{copies_.stages, copies_.tensors},
        rows(threadIdx.x / 128, copies_.stages, copies_.tensors, copies_.expressions),
        products(copies_.stages) {}

  __device__ __forceinline__ void run() {
    if (!copies.begin()) return;
    number = copies.number;
    unsigned word = copies.copy_block(0);
    commit_copies();
#pragma unroll 1
    for (int stage = 0; word != kEndOfStream; stage ^= 1) {
      wait_for_copies<0>();
      __syncthreads();
      if (word & kFirstOfTile) begin_item();
      begin_block(word);
      const unsigned next = copies.copy_block(stage ^ 1);
      commit_copies();
      products.multiply_keys(rows, stage);
      rows.each([](Strip& strip) { strip.weigh(); });
      products.weigh_values(rows, stage);
      if (word & kLastOfTile) end_item();
      word = next;
    }
  }

 private:
  __device__ __forceinline__ void begin_item() {
    unsigned words[2];
    copies.tell_item(number, words);
    rows.each([&](Strip& strip) { strip.begin(words); });
    if constexpr (C::kTables > 0) table.hold((int)words[0] % C::kUnits, (int)words[1]);
  }
  __device__ __forceinline__ void begin_block(unsigned word) {
    rows.each([&](Strip& strip) {
      strip.block = word;
      if (word & kFirstOfTile) strip.hold_queries();
    });
  }
  __device__ __forceinline__ void end_item() {
    unsigned words[2];
    copies.tell_item(number++, words);
    rows.each([&](Strip& strip) { strip.end(words); });
    const int further = queries == 0 ? 1 : -1;
    rows.each([&](Strip& strip) { strip.move_queries(further); });
    queries ^= 1;
  }
};

// The kernel, for 128 kGroups / kStrips threads, and as many blocks of them as run at the same
// time.
template <class C, class E, class L>
ATTN_INLINE void walking_forward(const ForwardTensors& tensors, const E& expressions,
                                 const L& lists) {
  using Copies = CopiesOfItems<typename LayersOfCopies<C, E, L>::Copies>;
  const Stages<C> stages{(shared_address(shared_memory()) + 127) & ~127u};
  Copies copies{stages, tensors, expressions, lists};
  WalkingThread<C, E, Copies>(copies).run();
}

}  // namespace kernels
