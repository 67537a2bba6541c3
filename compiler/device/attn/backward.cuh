// Backward attention over lists of row blocks, for compute capability 9.0.
//
// Keys stay. A block of threads takes 128 keys of one head, 64 for each of its two warp groups
// (Gradients), or 64 where columns are many (below), and the rows of all heads that share them
// stream by, kBlockRows at a time, which one thread copies (RowProducer). Scores are transposed, so
// that weights stay in registers: rows of an accumulator are keys, its columns are rows of q.
//
//   S^T = K Q^T       P^T = exp(S^T - lse)         dV += P^T dO
//   dP^T = V dO^T     dS^T = P^T (dP^T - delta) d  dK += dS^T Q      d: the score's derivative
//                                                  dQ^T += K^T dS^T
//
// With kSigmoid, P^T is the sigmoid of S^T, dS^T = P^T (1 - P^T) dP^T d, and there is neither lse
// nor delta. With kLinear, P^T is S^T, dS^T = dP^T d. With kQuotient, P^T = f(S^T) / sum of g(S^T)
// along the row, dS^T = (f' dP^T - g' delta) d / sum.
//
// The products of step i, in the order in which a warp group issues them:
//
//   dP(i) | dV(i) | dK(i)  dQ(i-1)  S(i+1)
//     P(i)    dS(i)                               what is computed meanwhile
//
// With more than 128 columns, registers of a warp group do not hold dK and dV of 64 keys. Then the
// warp groups have the same 64 keys, and both compute S. One makes dK, and dS, of which the other
// makes dQ:
//
//   keys    S(i)   dP(i)   dK(i)
//   values  S(i)   dQ(i-1) dV(i)
//
// dK and dV are complete when the last row is, and have the same bits in every run. dS goes through
// shared memory, because dQ takes the keys of both warp groups. dQ is summed in global memory, in
// f32, in the order of registers, and convert() makes dq of it.
// Before all this, prepare() computes delta, the sums of dO O over each row.
//
// Blocks of keys that many rows see, or all where there are few, are divided (kDivided,
// division.cuh): each part of their steps is an item of its own. It stores its sums of dK and dV in
// f32, and merge_parts() adds those of all parts, in a fixed order. Parts are taken before all
// other items, unless sums are ordered.
//
// An item has at least two steps: where fewer rows see its keys, it takes rows past the last one,
// whose weights are 0. The heads of a block of rows follow each other, or all rows of a head those
// of another (kHeadsOutside).
//
// If sums are ordered (C::kOrdered), each block of rows of a head has a turn: blocks of keys add to
// its dQ one after another, in ascending order, and each stores its successor. They are taken in
// that order, too, parts in the place of their block of keys, and only by blocks of threads that
// run. So the first that is not complete waits for none. Their rows are taken from the last to the
// first.
//
// Rows past the lengths of a batch have no weights, but they may be NaN. Blocks of keys past them
// are not read, and what else is copied of them is cleared (tails.cuh): by a warp that has no other
// task, or one that draws for random dropout.
//
// Files, in the order of the data; threads are made of layers, as in the forward:
//   backward_tensors, backward_defaults, places     what a kernel is given
//   backward_stages                                 shared memory and its barriers
//   backward_prepare                                delta, before all else
//   backward_widening                               the same, and rows of bf16, of 8-bit attentions
//   backward_copier, backward_producer              the thread that copies: what it knows, and does
//     backward_order, backward_items                the order of steps; blocks of keys or parts
//     backward_row_lists, bands                     their rows
//     backward_copies                               rows, keys, tables, tails
//   kept_drawer, query_adder                        other warps: random dropout; ordered sums of dQ
//   backward_group, backward_gradients              threads that compute: likewise
//     backward_thread, backward_layers              what all know; layers, whatever makes products
//     backward_products                             all products
//     backward_masks, backward_dropout              what is hidden, what is dropped
//     backward_weights, backward_slopes, scored     weights; derivatives of scores
//     backward_learned, learned_elements            learned tensors
//     query_sums, backward_store                    dQ; dK and dV
//     gradient_columns, magnitudes                  how gradients are rounded; their largest ones
//     backward_steps                                a block of rows
//   backward_convert, learned_gradients             kernels after it
//
// A generated kernel gives three classes:
//   C  constants: sizes, strides, with BackwardDefaults as their base
//   E  expressions, inlined: weight(), scale(), evaluate(..), mask(..), keep(..), keys(b),
//      queries(b), used_keys(b) and used_queries(b), which are at most these: masks that are
//      padding hide all others; and of random dropout seed(), offset(). A table that scores read at
//      [.., row, key] is copied beside the rows (kTable), and evaluate(..) is given its entry.
//      kParts: how often scores read learned tensors with a gradient (learned_parts.cuh), kLearned:
//      each of these; element<n>(..): which element a score reads, -1: none; local<n>(..): dS' of
//      one of dS
//   L  lists: which row blocks a block of keys sees (Tile, Run), rows in the place of keys;
//      before(i): if sums are ordered, how far before that of run i the last block of keys is that
//      sees the same rows; 0: there is none; with kDivided, the number of parts at most, parts(),
//      part(i) and most() as in Division; with kDivided and kItems, of other items, if sums are
//      ordered: divided_blocks(), how many, and divided_block(i). With kBand, tiles alone: rows
//      follow from rows(b, h, columns) of E (bands.cuh)
#pragma once

#include "attn/backward_convert.cuh"
#include "attn/backward_defaults.cuh"
#include "attn/backward_gradients.cuh"
#include "attn/backward_prepare.cuh"
#include "attn/backward_producer.cuh"
#include "attn/kept_drawer.cuh"
#include "attn/learned_gradients.cuh"
#include "attn/query_adder.cuh"
#include "attn/scored.cuh"

namespace kernels {

// The kernel, for 384 threads.
template <class C, class E, class L>
ATTN_INLINE void backward(const BackwardTensors& tensors, const E& expressions, const L& lists) {
  const BackwardStages<C> stages{(shared_address(shared_memory()) + 1023) & ~1023u};
  if (threadIdx.x == 0) stages.init();
  if (C::kShares && threadIdx.x == 0) {
    store_shared(stages.power_word(), reinterpret_cast<const Largest*>(tensors.words)->power());
  }
  __syncthreads();
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (group == 0) {
    give_registers<24>();
    // The compiler sees that all threads of a warp take the same way.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if (warp == 0) {
      if (elect()) RowProducer<C, E, L>{stages, tensors, expressions, lists}.run();
    } else if (C::kOrdered && warp == 1) {
      if constexpr (C::kOrdered) {
        if (elect()) QueryAdder<C>{stages, tensors}.run();
      }
    } else if constexpr (C::kRandom) {
      constexpr int kFirst = 4 - BackwardStages<C>::kDrawers;
      KeptDrawer<C, E>{stages, expressions, warp - kFirst}.run();
    } else if constexpr (BackwardStages<C>::kClears) {
      if (warp == 3) stages.tails().clear_all();
    }
  } else {
    take_registers<240>();
    Gradients<C, E>(stages, tensors, expressions, group - 1).run();
  }
}

}  // namespace kernels
