// Constants of the forward kernel and of key_lists.cuh that few kernels need: a generated class
// Constants derives from this one, and has those that differ.
#pragma once

namespace kernels {

struct ForwardDefaults {
  static constexpr bool kOneTurn = false;  // each block of threads has one item
  // A table that scores read: its stages; heads of a tile whose rows differ; bytes of an element.
  static constexpr int kTables = 0, kTablePack = 1, kTableElement = 2;
  static constexpr int kTableOfBatch = 0, kTableOfUnit = 0;
  // Rows of a page, those of one copy, and pages of a batch.
  static constexpr int kKeyPage = 0, kKeyPiece = 0, kKeyPages = 0;
  static constexpr int kValuePage = 0, kValuePiece = 0, kValuePages = 0;
  // Keys and values whose stages have groups of 8 rows, each with all panels (forward_stages.cuh);
  // and whether tiles share none, as a rule: sequences may share pages.
  static constexpr bool kGroupedKeys = false, kGroupedValues = false, kReadOnce = false;
  // Keys and values that are copied row by row: columns of keys, strides in elements. Those in
  // groups have strides in steps of the map (TensorMapArgument::kPagesAndHeads). In mma_forward.cuh
  // that of pages is that of batches, where there are no pages.
  static constexpr bool kGatherKeys = false, kGatherValues = false;
  static constexpr int kTaken = 0;
  static constexpr long long kKeyPageStride = 0, kKeyHeadStride = 0, kKeyRowStride = 0;
  static constexpr long long kQueryColumnStride = 1, kKeyColumnStride = 1, kValueColumnStride = 1;
  static constexpr long long kValuePageStride = 0, kValueHeadStride = 0, kValueRowStride = 0;
  // The same of queries, and of how many 16 columns they stay in registers (mma_forward.cuh).
  static constexpr long long kQueryBatchStride = 0, kQueryHeadStride = 0, kQueryRowStride = 0;
  static constexpr int kHeldQueries = 0;
  // Strips of 16 rows that a warp has (mma_forward.cuh); whether blocks of threads have several
  // items each, and hold the rows of a table, with elements from a head or a row to the next
  // (mma_walking.cuh).
  static constexpr int kStrips = 1;
  static constexpr bool kWalks = false;
  static constexpr int kTableHead = 0, kTableRow = 0;
  // Whether strides of keys and values in pages, and of packed rows of o, are in `tensors`.
  static constexpr bool kBoundKeys = false, kBoundValues = false, kBoundOutput = false;
  static constexpr bool kBoundQueries = false;  // of mma_copies.cuh
  // Whether keys and values have 8 bits beside queries of 16; warp groups that widen them, which
  // hold as many blocks each before (forward_widening.cuh).
  static constexpr bool kWidens = false;
  static constexpr int kWideners = 0;
  // Whether q, k and v have 8 bits, of this type, which threads that copy widen (mma_rows.cuh).
  static constexpr bool kNarrow = false;
  using Narrow = void;
  // Whether k and v alone do so, of the types Keys and Values.
  static constexpr bool kNarrowKeys = false;
  using Keys = void;
  using Values = void;
  // Columns of e4m3 that a row of keys begins with, and how many of them share a scale, where keys
  // have several types (formatted_rows.cuh).
  static constexpr int kNarrowColumns = 0, kScaleBlock = 0;
  // Whether products take other floats than queries have (forward_converted_queries.cuh).
  static constexpr bool kConvertsQueries = false;
  // Whether tiles have 8 rows at most, the first ones of the first warp.
  static constexpr bool kEightRows = false;
  // Whether each key has its scales, and strides of these, in elements.
  static constexpr bool kTokenScales = false;
  static constexpr long long kKeyScalePage = 0, kKeyScaleHead = 0, kKeyScaleRow = 0;
  static constexpr long long kValueScalePage = 0, kValueScaleHead = 0, kValueScaleRow = 0;
  // Lists.
  static constexpr int kFront = 0, kListsOfBatch = 0, kListsOfUnit = 0, kListsDone = 0;
  static constexpr bool kBatchesFirst = false, kOverlaps = false;
  // Blocks that have a closed form (bands.cuh), and what the first key of a tile is a multiple of.
  static constexpr bool kBand = false, kLastTilesFirst = false;
  static constexpr int kBandStart = 0;
  // Keys that lists name (chosen_rows.cuh), if there are any: keys of a batch of the cache, rows of
  // a page and pages of a batch, and rows of queries that share a batch, each of which is a batch
  // of the kernel.
  static constexpr int kCacheKeys = 0, kCachePage = 0, kCachePages = 0, kRowsOfCache = 0;
  // Whether values are the first columns of keys, and one stage holds both.
  static constexpr bool kValuesOfKeys = false;
  // A schedule (schedule.cuh): blocks of threads; blocks of keys that an item costs besides its
  // own, that merging four parts of a tile costs, and the fewest of a span; the share of a block of
  // threads above which it takes parts in turns, how many, and their least blocks; slots of parts.
  static constexpr bool kScheduled = false;
  static constexpr int kWorkers = 0, kBetween = 0, kMerging = 0, kLeastSpan = 0;
  static constexpr int kLongShare = 0, kTurnsOfShare = 1, kLeastOfTurns = 1, kSlots = 0;
  // Whether a schedule may have items of keys that sequences share (schedule_prefix.cuh).
  static constexpr bool kPrefix = false;
  // Neighbourhoods of a grid.
  static constexpr bool kPatches = false;
  static constexpr int kGrid = 0, kPatchWidth = 0, kPatchHeight = 0;
  static constexpr int kRowsOfBatch = 0, kUnitsOfBatch = 0;
  // Lengths, masks that are padding, packed sequences.
  static constexpr bool kLengths = false, kPadded = false;
  static constexpr bool kThdQ = false, kThdK = false, kThdV = false, kThdO = false;
  // Warp groups that take turns; maxima that may stay behind; what is stored besides.
  static constexpr bool kTurns = false, kLazy = false, kAligned = false;
  static constexpr bool kAmaxOfWeights = false, kAmaxOfOutputs = false;
  static constexpr long long kOutputBatch = 0, kOutputHead = 0, kOutputRow = 0, kOutputColumn = 0;
  static constexpr long long kStatisticsBatch = 0, kStatisticsHead = 0, kStatisticsRow = 0;
  // Heads of each class of rows.
  static constexpr long long kStatisticsClass = 0;
  static constexpr int kHeadsOfClass = 1;
};

}  // namespace kernels
