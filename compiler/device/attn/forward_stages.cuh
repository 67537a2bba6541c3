// Shared memory of the forward kernel: stages, barriers, words.
#pragma once

#include "attn/tails.cuh"
#include "attn/turns.cuh"
#include "attn/widened_rows.cuh"

namespace kernels {

constexpr int kGatherThreads = 128;  // that copy rows: a warp group
constexpr int kHandedWords = 7;      // besides the weights: Handover::hand_over

// Whether warp groups leave out tiles of which they have no rows, as of a decoding sequence beside
// others: of a schedule, where rows past the end are not stored.
template <class C, class E>
constexpr bool kSparesWarpGroups = C::kScheduled&& C::kThdO&& C::kGroups > 1 && C::kShares == 1 &&
                                   C::kTables == 0 && !E::kMasksByIndices;

// Addresses in shared memory. Each stage has a barrier that it is full and one that it is empty.
template <class C>
struct Stages {
  static constexpr int kElement = sizeof(typename C::Float::Bits);
  static constexpr bool kOf8Bits = kElement == 1;
  static constexpr int kTileRows = 64 * C::kGroups;
  static constexpr int kDepthPanels = (C::kDepth + C::kDepthPanel - 1) / C::kDepthPanel;
  // Rows of values are keys, or columns if keys are adjacent.
  static constexpr int kValueRows = kOf8Bits ? C::kWidth : C::kKeys;
  static constexpr int kValueColumns = kOf8Bits ? C::kKeys : C::kWidth;
  // Those of a stage of values: of all columns of k, if values are some of them.
  static constexpr int kWidthPanels =
      C::kValuesOfKeys ? kDepthPanels : (kValueColumns + C::kWidthPanel - 1) / C::kWidthPanel;
  static constexpr int kKeyRow = kElement * C::kDepthPanel;  // of a panel
  static constexpr int kValueRow = kElement * C::kWidthPanel;
  static constexpr int kQueryPanel = kTileRows * kKeyRow, kQueryBytes = kDepthPanels * kQueryPanel;
  static constexpr int kKeyPanel = C::kKeys * kKeyRow, kKeyBytes = kDepthPanels * kKeyPanel;
  static constexpr int kValuePanel = kValueRows * kValueRow;
  static constexpr int kValueBytes = kWidthPanels * kValuePanel;
  // Bytes between panels, and between groups of 8 rows, which have a panel after the other or,
  // where pages are copied with all their panels at once, all panels.
  static constexpr int kKeyPanelStride = C::kGroupedKeys ? 8 * kKeyRow : kKeyPanel;
  static constexpr int kKeyGroup = (C::kGroupedKeys ? kDepthPanels : 1) * 8 * kKeyRow;
  static constexpr int kValuePanelStride = C::kGroupedValues ? 8 * kValueRow : kValuePanel;
  static constexpr int kValueGroup = (C::kGroupedValues ? kWidthPanels : 1) * 8 * kValueRow;
  // A table of 16-bit floats is in swizzled panels of 64 columns, each of whole groups of 8 rows.
  // One of f32 has rows that begin 8 or 24 banks after each other.
  static constexpr bool kWideTable = C::kTableElement == 4;
  static constexpr int kTableRows = C::kRowsOfTile * C::kTablePack;
  // Kernels that walk items hold all columns.
  static constexpr int kTableColumns = C::kWalks ? C::kColumns : C::kKeys;
  static constexpr int kTablePanels = kWideTable ? 1 : (kTableColumns + 63) / 64;
  static constexpr int kTablePitch = kWideTable ? 4 * (C::kKeys + 8) : 128;  // bytes
  static constexpr int kTablePanel = (kTableRows + 7) / 8 * 8 * kTablePitch;
  static constexpr int kTableBytes = kTablePanels * kTablePanel;
  // What a warp group hands over of each block, in words of a thread: the weights, kHandedWords
  // more.
  static constexpr int kHandedBytes = (C::kKeys / 4 + kHandedWords) * 128 * 4;
  // Blocks that are handed over at a time: one, where memory is for stages of keys with values.
  static constexpr int kHanded = C::kShares == 1 ? 0 : C::kValuesOfKeys ? 1 : 2;
  // Stages of values besides those of keys, which hold values of keys.
  static constexpr int kValueStages = C::kValuesOfKeys ? 0 : C::kStages;
  static_assert(!C::kValuesOfKeys || (C::kDepthPanel == C::kWidthPanel &&
                                      C::kGroupedKeys == C::kGroupedValues && !kOf8Bits),
                "");
  // Blocks of 8 bits; and scales of their keys and values.
  using KeyRows = WidenedRows<C::kKeys, C::kTaken, C::kDepth, C::kDepthPanel>;
  using ValueRows = WidenedRows<C::kKeys, C::kStored, C::kWidth, C::kWidthPanel>;
  static constexpr int kScaleBytes = C::kTokenScales ? 2 * 4 * C::kKeys : 0;
  static constexpr int kBarriers = C::kQueries * kQueryBytes + C::kStages * kKeyBytes +
                                   kValueStages * kValueBytes + C::kTables * kTableBytes +
                                   kHanded * kHandedBytes + C::kStages * kScaleBytes;
  static constexpr int kCount =
      C::kQueries + C::kStages + kValueStages + C::kTables + kHanded;  // of pairs of barriers
  // Whether values past the length of a batch are cleared. Copies by rows leave them out, and so do
  // maps of sequences; transposed_values.cuh stores zeros.
  static constexpr bool kHasTails = (C::kLengths || C::kPadded || C::kValuePage > 0) && !C::kThdV &&
                                    !kOf8Bits && !C::kWidens && !C::kNarrow && !C::kNarrowKeys;
  static constexpr bool kClears = kHasTails && !C::kGatherValues && !C::kPatches;
  using ValueTails = Tails<kHasTails ? C::kStages : 0>;
  static constexpr int kTails = kBarriers + 16 * kCount;
  static constexpr int kWords = kTails + ValueTails::kBytes;
  static constexpr int kBytes = kWords + 8 * C::kQueries + 4 * C::kStages + 8;

  unsigned base;

  __device__ unsigned query(int n) const { return base + n * kQueryBytes; }
  __device__ unsigned key(int n) const { return base + C::kQueries * kQueryBytes + n * kKeyBytes; }
  __device__ unsigned value(int n) const {
    return C::kValuesOfKeys ? key(n) : key(C::kStages) + n * kValueBytes;
  }
  __device__ unsigned table(int n) const { return value(C::kStages) + n * kTableBytes; }
  __device__ unsigned handed(int n) const { return table(C::kTables) + n * kHandedBytes; }
  // Scales of keys; those of values follow.
  __device__ unsigned scales(int n) const { return handed(kHanded) + n * kScaleBytes; }
  __device__ unsigned query_full(int n) const { return base + kBarriers + 16 * n; }
  __device__ unsigned key_full(int n) const { return query_full(C::kQueries) + 16 * n; }
  __device__ unsigned value_full(int n) const {
    return C::kValuesOfKeys ? key_full(n) : key_full(C::kStages) + 16 * n;
  }
  __device__ unsigned table_full(int n) const { return value_full(C::kStages) + 16 * n; }
  __device__ unsigned handed_full(int n) const { return table_full(C::kTables) + 16 * n; }
  __device__ unsigned query_word(int n) const { return base + kWords + 8 * n; }
  __device__ unsigned key_word(int n) const { return query_word(C::kQueries) + 4 * n; }
  __device__ unsigned item_word(int n) const { return key_word(C::kStages) + 4 * n; }
  __device__ ValueTails tails() const { return {base + kTails}; }

  __device__ void init() const {
    constexpr int kWarps = 4 * C::kGroups;
    init_pairs(query_full(0), C::kQueries, 1, kWarps);
    // Those who announce what copies bring, and threads that copy rows; or threads that widen.
    constexpr int kRows = C::kWidens ? kWideningThreads : 1 + kGatherThreads;
    init_pairs(key_full(0), C::kStages, C::kGatherKeys ? kRows : 1,
               kWarps * (C::kValuesOfKeys ? C::kShares : 1));
    init_pairs(value_full(0), kValueStages, C::kGatherValues ? kRows : 1, kWarps * C::kShares);
    init_pairs(table_full(0), C::kTables, 1, kWarps);
    init_pairs(handed_full(0), kHanded, kWarps, kWarps);
    tails().init();
    publish_barriers();
  }
  // Arrivals that fill stages and that empty them: of warps, or of those that copy.
  static __device__ void init_pairs(unsigned full, int count, unsigned filling, unsigned emptying) {
    for (int n = 0; n < count; ++n, full += 16) {
      init_barrier(full, filling);
      init_barrier(empty_of(full), emptying);
    }
  }
};

}  // namespace kernels
