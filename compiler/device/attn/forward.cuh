// Forward attention over lists of key blocks, for compute capability 9.0.
//
// A block of threads has one warp that copies (Producer) and kGroups warp groups that compute
// (Consumer), each 64 rows of a tile of queries. Blocks of threads stay and take tiles until none
// is left; the tiles of one follow each other as one stream of key blocks:
//
//   producer    Q  K0   K1 V0   K2 V1   ..   Q' K0' Vn  ..        into stages, as they become empty
//   consumer    S0 | S1 while O += P0 V0 | S2 while O += P1 V1 | ..
//
// The scores of a block are issued before the product with the values of the block before, so that
// the tensor cores work under its softmax. Exponentials are to base 2. The maximum of a row, which
// they are relative to, moves only when it has grown by 8 (kLazy): o is seldom scaled. Scores that
// are bounded need none (kBounded).
//
// A tile has kRowsOfTile queries of kPack heads that share keys: row r is query r / kPack of the
// tile and head r % kPack of the unit of heads.
//
// With kOverlaps, the launch before, which makes lists, may still run. Only what copies reads them.
//
// With kPointwise, a weight is the sigmoid of its score (kSigmoid) or the score itself (kLinear):
// rows have no maximum and no sum. With kQuotient, it is one function of the score over the sum of
// another along the row (forward_quotient.cuh).
//
// With kSplits above 1, the key blocks of a tile are computed in as many parts, by different blocks
// of threads, for GPUs that would have too few tiles otherwise. Each warp stores what it has of a
// part; the last one to do so merges its rows of all parts, in their order.
//
// Where o has more columns than the registers of a warp group hold (kShares is 2), a second warp
// group has those from kShare on. It computes no scores: the first hands it the weights of each
// block, and what a tile is finished with, through shared memory. The first is what a step waits
// for then, so it has scores computed one block further ahead (forward_ahead.cuh).
//
// Where values are the first columns of keys (kValuesOfKeys), a stage of keys is one of values,
// too, and is copied once: its panels have keys as rows, which the product with keys reads as they
// are, and the one with values transposed.
//
// Where masks are of neighbourhoods of a grid (kPatches), tiles and blocks are rectangles of it:
// kPatchWidth x kPatchHeight queries, and 8 x 16 keys. Rows and columns of scores are places then.
//
// Values past the length of a batch are cleared in the last block that has any (tails.cuh): their
// weights are 0, but they may be NaN.
//
// kDepth is Dqk rounded up to 16, the steps of products, and kWidth is Dv rounded up to 32. In
// shared memory matrices are in panels of kDepthPanel and kWidthPanel columns, 64 or 32, so that
// the last one has few columns that are not used. Copies by TMA bring zeros for what the tensors do
// not have.
//
// Products of 8-bit floats take 32 columns, and panels have 128 or 64. They read values with the
// keys of a column adjacent, as transposed_values.cuh stored them: its order of keys is that in
// which a thread has weights. kWidthPanel counts keys then. Weights are 2^(x + log2(scale_s)) from
// the start, so that none is multiplied, and the maximum may stay behind by what their type has
// room for. If that is little, they are smaller by a power of 2. The lanes of a row compare their
// scores only where one exceeds the room (kFollows).
//
// Files, in the order of the data:
//   tile_runs, forward_tensors, forward_defaults    what a kernel is given
//   forward_stages, turns                           shared memory and its barriers
//   forward_copier, forward_producer                threads that copy: what they know, what they do
//     forward_items, bands                          tiles, and the blocks of keys that each sees
//     block_loader                                  keys and values: batches, thd, pages, patches
//     block_rows, gathered_rows, chosen_rows        rows of these, by TMA and one by one
//     found_ahead                                   where they are, found before their turn
//     packed_rows                                   places of packed sequences in a map
//     forward_copies, forward_value_copies          queries, keys and tables; values
//     forward_shared_copies                         keys that hold their values
//     widened_rows, forward_widening                keys and values of 8 bits beside queries of 16
//     formatted_rows, forward_formatted             keys in rows of several types
//   forward_thread, forward_consumer                threads that compute: likewise
//   forward_layers                                layers above products, as mma_forward.cuh has,
//   too
//     forward_columns, tile_rows, patches           which scores a thread has
//     forward_products, forward_values              products with keys, and with values
//     forward_scores, forward_table                 scores that the spec modifies; a captured table
//     forward_token_scales                          columns times scales of keys and of values
//     forward_converted_queries                     queries as floats that widened keys have
//     forward_masks, forward_dropout                what is hidden, what is dropped
//     forward_softmax, forward_sigmoid, forward_linear  weights of scores
//     forward_quotient                              weights over a sum of others
//     forward_following, forward_range              weights of 8-bit floats
//     forward_statistics, forward_store             rows of outputs
//     forward_parts, forward_merge, forward_finish  parts of tiles, their merge, the end of a tile
//     forward_prefix                                keys that sequences share
//     forward_handover                              weights for the warp group with other columns
//     forward_weighing, forward_steps               a block of keys
//     forward_ahead                                 the same, where scores are computed ahead
//
// Threads are made of layers: each is a template of the class below it, names what it uses of that
// (using Base::..), and adds one thing. Where there are several ways, a kernel takes one of them.
//
// A generated kernel gives three classes:
//   C  constants: sizes, tile, stages, strides, with ForwardDefaults as their base
//   E  expressions, inlined: weight(), lines(..), score(..), mask(..), mask_by_indices(..),
//      keep(..), sink(..), keys(b), queries(b), used_keys(b), which is at most keys(b): masks that
//      are padding hide all others; of random dropout seed(), offset(), and of 8-bit floats scale()
//   L  lists: which key blocks a tile sees (Tile, Run); none with kBand, where these follow from
//      columns(b, h, rows) of E: where what the rows of a tile see begins and ends (bands.cuh)
#pragma once

#include "attn/forward_consumer.cuh"
#include "attn/forward_defaults.cuh"
#include "attn/forward_formatted.cuh"
#include "attn/forward_producer.cuh"
#include "attn/forward_widening.cuh"

namespace kernels {

// Registers of a thread of each kind. Threads that hold keys take most of those that copy, and
// threads that copy rows more than those that let TMA do it.
template <class C, class Copies>
struct RegistersOf {
  static constexpr int kComputing = C::kGroups * C::kShares;            // warp groups
  static constexpr int kCopying = C::kWideners > 1 ? C::kWideners : 1;  // likewise
  static constexpr int kGroups = kComputing + kCopying;
  static constexpr int kOfCopies = C::kWidens         ? (C::kTokenScales     ? 144
                                                         : C::kWideners == 2 ? 128
                                                                             : 120)
                                   : Copies::kGathers ? (kComputing == 2 ? 72 : 56)
                                   : kComputing == 2  ? 40
                                                      : 32;
  // What all groups have together is no more than the block has from its launch: a group would wait
  // for more for ever.
  static constexpr int kAll = 65536 / (128 * kGroups) / 8 * 8 * kGroups;
  static constexpr int kRest = (kAll - kCopying * kOfCopies) / kComputing / 8 * 8;
  static constexpr int kOfOthers = kRest < 248 ? kRest : 248;
  // Whether a launch with as many for each has too few for those that compute.
  static constexpr bool kGiven = kGroups > 2;
  static_assert(!kGiven || kCopying * kOfCopies + kComputing * kOfOthers <= kAll, "");
};

// The threads that copy: those that do so for all products, or with two kWideners for keys alone.
template <class C, class E, class L>
struct CopiesOf {
  using Items = typename CopierLayers<C, E, L>::Items;
  using Widening = typename Which<(C::kNarrowColumns > 0), FormattedProducer<Items>,
                                  WideningProducer<Items, true, C::kWideners == 1>>::Type;
  using Type = typename Which<C::kWidens, Widening, Producer<C, E, L>>::Type;
};

// What warp group `group` copies.
template <class C, class E, class L>
ATTN_INLINE void copy_for_forward(const Stages<C>& stages, const ForwardTensors& tensors,
                                  const E& expressions, const L& lists, int group) {
  using Copies = typename CopiesOf<C, E, L>::Type;
  if constexpr (C::kWideners > 1) {
    using Items = typename CopiesOf<C, E, L>::Items;
    if (group == 1) {
      WideningProducer<Items, false, true>{stages, tensors, expressions, lists}.run();
      return;
    }
  }
  // The compiler sees that all threads of a warp take the same way.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if constexpr (Copies::kClearsLater) {
    if (warp == 3) {
      stages.tails().clear_all();
      return;
    }
  }
  if (warp == 0 && Copies::kThreads == 1) {
    if (elect()) Copies{stages, tensors, expressions, lists}.run();
  } else if (32 * warp < Copies::kThreads) {
    Copies{stages, tensors, expressions, lists}.run();
  }
}

// The kernel, for 128 (kGroups kShares + 1) threads, or 128 more if others widen values.
template <class C, class E, class L>
ATTN_INLINE void forward(const ForwardTensors& tensors, const E& expressions, const L& lists) {
  const Stages<C> stages{(shared_address(shared_memory()) + 1023) & ~1023u};
  if (threadIdx.x == 0) stages.init();
  __syncthreads();
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  using Registers = RegistersOf<C, typename CopiesOf<C, E, L>::Type>;
  if (group < Registers::kCopying) {
    if constexpr (Registers::kGiven) give_registers<Registers::kOfCopies>();
    copy_for_forward<C>(stages, tensors, expressions, lists, group);
  } else {
    if constexpr (Registers::kGiven) take_registers<Registers::kOfOthers>();
    const int number = group - Registers::kCopying;
    if constexpr (!kStepsAhead<C>) {
      Consumer<C, E>(stages, tensors, expressions, number).run();
    } else if (number < C::kGroups) {
      Consumer<C, E>(stages, tensors, expressions, number).run_tiles();
    } else if constexpr (C::kShares > 1) {
      Consumer<C, E, true>(stages, tensors, expressions, number - C::kGroups).weigh();
    }
  }
}

}  // namespace kernels
