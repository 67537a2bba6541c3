// Copies of queries, keys and tables by the forward.
#pragma once

#include "attn/forward_copier.cuh"
#include "attn/packed_rows.cuh"
#include "attn/patches.cuh"
#include "attn/schedule.cuh"

namespace kernels {

// Copies each into the next stage, once that is empty.
template <class Base>
struct ForwardCopies : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using Item = typename Base::Item;
  using KeyLoader = typename Base::KeyLoader;
  using Base::stages, Base::tensors, Base::expressions, Base::query, Base::key, Base::table,
      Base::kLanes, Base::is_first, Base::takes_part;

  // Where one warp group computes: threads that copy beside more have no registers for it, and work
  // for longer.
  __device__ void prefetch_maps() const {
    if (C::kGroups * C::kShares > 1 || !is_first()) return;
    prefetch_map(*tensors.q);
    if constexpr (!C::kGatherKeys) prefetch_map(*tensors.k);
    if constexpr (!C::kGatherValues && !C::kValuesOfKeys) prefetch_map(*tensors.v);
  }

  __device__ void copy_queries(const Item& item) {
    if (!takes_part(false)) return;
    const unsigned full = stages.query_full(query.stage);
    wait(empty_of(full), query.parity);
    if (is_first()) {
      store_shared(stages.query_word(query.stage), item.b * C::kUnits + item.unit);
      store_shared(stages.query_word(query.stage) + 4,
                   C::kScheduled ? item.tile.tile | (unsigned)item.part << kTileBits
                                 : item.tile.tile * C::kSplits + item.part);
      arrive_expecting(full, S::kQueryBytes);
      for (int panel = 0; panel < S::kDepthPanels; ++panel) {
        const unsigned to = stages.query(query.stage) + panel * S::kQueryPanel;
        const int column = panel * C::kDepthPanel;
        if constexpr (C::kPatches) {
          const Place first = patch_of_queries<C>(item.tile.tile);
          copy_box(to, *tensors.q, full, column, 0, first.x, first.y + item.b * C::kRowsOfBatch,
                   item.unit + item.b * C::kUnitsOfBatch);
        } else {
          const int row = item.tile.tile * C::kRowsOfTile;
          if constexpr (C::kThdQ) {
            const int length =
                this->is_of_prefix(item) ? rows_of_all() : expressions.queries(item.b);
            const int first = this->is_of_prefix(item) ? 0 : item.b;
            copy_box(to, *tensors.q, full, column, item.unit * C::kPack,
                     PackedRows::place(row, length),
                     PackedRows::last(tensors.row_starts, first, length), PackedRows::kSteps);
          } else {
            constexpr int kRows = C::kRowsOfCache;  // each of which is a batch of one row
            copy_box(to, *tensors.q, full, column, 0,
                     kRows > 0 ? item.b % (kRows > 0 ? kRows : 1) : row, item.unit,
                     kRows > 0 ? item.b / (kRows > 0 ? kRows : 1) : item.b);
          }
        }
      }
    }
    query.next();
  }

  // Packed rows of all sequences of the schedule.
  __device__ int rows_of_all() const {
    return tensors.row_starts[sequences_of(tensors.schedule)] - tensors.row_starts[0];
  }

  // Where a block begins in the map of keys or values: its row, and the coordinate after heads, of
  // its batch; of packed ones with so many rows as packed_rows.cuh says.
  struct BlockPlace {
    int row, last;
  };
  template <bool kPacked>
  __device__ BlockPlace place_of(int b, int at, int length) const {
    if constexpr (!kPacked) return {at, b};
    return {PackedRows::place(at, length), PackedRows::last(tensors.column_starts, b, length)};
  }

  // The block of keys at that place, of which `word` tells the consumers.
  __device__ void copy_keys(const BlockPlace& at, int head, unsigned word, int keys) {
    const unsigned full = stages.key_full(key.stage);
    KeyLoader rows;
    rows.find(tensors, at.last, at.row, keys);
    wait(empty_of(full), key.parity);
    if (is_first()) {
      store_shared(stages.key_word(key.stage), word);
      if (C::kGatherKeys)
        arrive(full);
      else
        arrive_expecting(full, S::kKeyBytes);
    }
    rows.copy(stages.key(key.stage), tensors, full, at.row, head, at.last);
  }

  __device__ void copy_table(const Item& item, int at) {
    const unsigned full = stages.table_full(table.stage);
    wait(empty_of(full), table.parity);
    constexpr int kCopied = S::kTablePanels * S::kTableRows * S::kTablePitch;
    if (is_first()) arrive_expecting(full, kCopied);
    for (int panel = 0; is_first() && panel < S::kTablePanels; ++panel) {
      copy_box(stages.table(table.stage) + panel * S::kTablePanel, *tensors.table, full,
               at + panel * 64, 0, item.tile.tile * C::kRowsOfTile, item.unit * C::kTableOfUnit,
               item.b * C::kTableOfBatch);
    }
    if (kLanes > 1) __syncwarp();  // as BlockRows::copy
    table.next();
  }
};

}  // namespace kernels
