// Layers of a thread of the backward that computes, above those that make products: all that
// follows from the scores of a block of rows which the thread has, whatever instructions made them.
#pragma once

#include "attn/backward_dropout.cuh"
#include "attn/backward_learned.cuh"
#include "attn/backward_masks.cuh"
#include "attn/backward_slopes.cuh"
#include "attn/backward_thread.cuh"
#include "attn/backward_weights.cuh"
#include "attn/which.cuh"

namespace kernels {

// `Products`: the layer that makes them. Its thread has, besides what BackwardThread has:
//   slopes_of_lane(n), store_slopes(place, j)   where dS^T of a stage goes in shared memory
//   wait_for_kept(), take_kept()                what random dropout keeps
//   warp_of_keys()                              of the warps that use memory for sums of diagonals
template <class Products>
struct BackwardLayers {
  using E = typename Products::E;
  using Masks = BackwardDropout<BackwardMasks<Products>>;
  using Each = typename Which<E::kSigmoid, SigmoidSlopes<Masks>, LinearSlopes<Masks>>::Type;
  using Divided =
      typename Which<E::kQuotient, DividedWeights<Masks>, ExponentialWeights<Masks>>::Type;
  using Function = typename Which<kPointwise<E>, Each, Divided>::Type;
  using Slopes = BackwardSlopes<BackwardWeights<Function>>;
  using Learned = BackwardLearned<LearnedElements<Slopes>>;
};

}  // namespace kernels
