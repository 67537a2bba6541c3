// Constants of the backward kernel that few kernels need: a generated class Constants derives from
// this one, and has those that differ.
#pragma once

namespace kernels {

struct BackwardDefaults {
  static constexpr int kDivided = 0, kListsOfBatch = 0, kListsOfHead = 0, kItems = 0;
  static constexpr long long kStatisticsClass = 0;
  static constexpr bool kLengths = false, kPadded = false, kRowsFit = false, kRandom = false;
  static constexpr bool kOrdered = false, kHeadsOutside = false, kBatchesFirst = false;
  static constexpr bool kBand = false;  // rows have a closed form (bands.cuh)
  static constexpr bool kDiagonals = false, kShares = false;
  static constexpr bool kTable = false, kTableOfBatch = false, kTableOfHead = false;
  static constexpr bool kOfWarps = false;  // products are those of warps (mma_backward.cuh)
  static constexpr int kRowGroups = 1;     // of warps that share keys, then
  // Keys, and values, of so many 16 columns stay in registers, then.
  static constexpr int kHeldKeys = 0, kHeldValues = 0;
  static constexpr bool kScatters = false;  // no instruction adds vectors to memory, then
  // All keys of a head are one block, then, and one launch is all (mma_short_backward.cuh). A part
  // of E::kLearned whose elements are those of all batches is summed until the head changes: one
  // less than kSummed.
  static constexpr bool kShort = false;
  static constexpr int kSummed = 0;
  // Elements from a head or a row of a table to the next, then.
  static constexpr int kTableHead = 0, kTableRow = 0;
  // Tensors are those of an 8-bit attention, whose rows were widened (backward_widening.cuh).
  static constexpr bool kNarrow = false;
  using Gradient = void;  // then, the type of dq, dk and dv
  // And where the rows that were widened are.
  using QueryRows = void;
  using KeyRows = void;
  using ValueRows = void;
  using GradientRows = void;
};

}  // namespace kernels
