// Layers of a thread of the forward that computes, above those that make products: all that follows
// from the scores of a block which the thread has, whatever instructions made them.
#pragma once

#include "attn/forward_dropout.cuh"
#include "attn/forward_epilogue.cuh"
#include "attn/forward_finish.cuh"
#include "attn/forward_following.cuh"
#include "attn/forward_linear.cuh"
#include "attn/forward_masks.cuh"
#include "attn/forward_merge.cuh"
#include "attn/forward_parts.cuh"
#include "attn/forward_prefix.cuh"
#include "attn/forward_quotient.cuh"
#include "attn/forward_scores.cuh"
#include "attn/forward_sigmoid.cuh"
#include "attn/forward_softmax.cuh"
#include "attn/forward_statistics.cuh"
#include "attn/forward_store.cuh"
#include "attn/forward_table.cuh"
#include "attn/forward_thread.cuh"
#include "attn/forward_weighing.cuh"
#include "attn/which.cuh"

namespace kernels {

// `Values`: the layer that packs weights as operands.
template <class C, class E, class Values>
struct LayersOfScores {
  template <bool kFirst, class A, class B>
  using Either = typename Which<kFirst, A, B>::Type;

  using Narrow = Either<C::kWalks, HeldTable<Values>, NarrowTable<Values>>;
  using Table = Either<C::kTables == 0, NoTable<Values>,
                       Either<Stages<C>::kWideTable, WideTable<Values>, Narrow>>;
  using Scores = ForwardDropout<ForwardMasks<ForwardScores<Table>>>;
  using Softmax = Either<Values::kFollows, FollowingWeights<Scores>, SoftmaxWeights<Scores>>;
  using Weights = Either<E::kSigmoid, SigmoidWeights<Scores>,
                         Either<E::kLinear, LinearWeights<Scores>,
                                Either<E::kQuotient, QuotientWeights<Scores>, Softmax>>>;
  using Columns = StoredColumns<Weights>;
  using Rows = Either<
      E::kEpilogue, RowsOfEpilogue<Columns>,
      Either<sizeof(typename C::Output::Bits) == 1, RowsOf8Bits<Columns>, RowsOf16Bits<Columns>>>;
  using Finished = FinishedTiles<MergedParts<PrefixOfRows<StoredParts<Rows>>>>;
  using Tiles = WeighedScores<Finished>;
};

}  // namespace kernels
