// The end of a tile of the forward.
#pragma once

#include "attn/hopper.cuh"
#include "attn/magnitudes.cuh"
#include "attn/tile_rows.cuh"

namespace kernels {

// Stores tiles whose keys all were seen.
template <class Base>
struct FinishedTiles : Base {
  using C = typename Base::C;
  using Largest = typename Base::Largest;
  using OutputBits = typename Base::OutputBits;
  using Statistics = typename Base::Statistics;
  using Ahead = typename Base::Ahead;
  using Base::Base;
  using Base::tensors, Base::lane, Base::kKeepsLargest, Base::finish_row, Base::store_row,
      Base::store_part, Base::store_merged, Base::parts_of, Base::exists, Base::prefix,
      Base::is_of_prefix, Base::store_part_of_prefix, Base::add_prefix;

  // Stores a finished tile, if no part of it is missing. `ahead` has what read_ahead read for it.
  __device__ __forceinline__ void finish(const TileRows<C>& at, const Statistics& of,
                                         Ahead& ahead) {
    if constexpr (C::kPrefix) {
      if (is_of_prefix(at)) {
        store_part_of_prefix(parts_of(at), of.maxima, of.sums);
        return;
      }
      float maxima[2] = {of.maxima[0], of.maxima[1]}, sums[2] = {of.sums[0], of.sums[1]};
      if (prefix().parts() > 0 && (at.item == 0 || parts_of(at).own == 0))
        add_prefix(at, maxima, sums);
      finish_rows(at, {maxima, sums, of.kept}, ahead);
    } else {
      finish_rows(at, of, ahead);
    }
  }

  __device__ __forceinline__ void finish_rows(const TileRows<C>& at, const Statistics& of,
                                              Ahead& ahead) {
    Largest largest;
    if (C::kScheduled ? at.item == 0 : C::kSplits == 1) {
      store(at, of, largest, ahead);
    } else if constexpr (C::kScheduled || C::kSplits > 1) {
      const bool any = __any_sync(~0u, exists(at.b, at.q[0]));  // of the warp's rows: the first
      if (!any) return;
      const auto parts = parts_of(at);
      if (!store_part(at, parts, of.maxima, of.sums)) return;
      store_merged(at, parts, largest);
    }
    if constexpr (C::kAmaxOfWeights) store_largest(tensors.amax_s, largest.weight);
    if constexpr (C::kAmaxOfOutputs) store_largest(tensors.amax_o, largest.output);
  }

  // Stores rows that are complete.
  __device__ __forceinline__ void store(const TileRows<C>& at, const Statistics& of, Largest& most,
                                        Ahead& ahead) {
    this->read_vectors(at, ahead);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = of.sums[r], kept_of_row = of.kept[r];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      if constexpr (kKeepsLargest) {
        kept_of_row = fmaxf(kept_of_row, __shfl_xor_sync(~0u, kept_of_row, 1));
        kept_of_row = fmaxf(kept_of_row, __shfl_xor_sync(~0u, kept_of_row, 2));
      }
      const float factor = finish_row(at.b, at.h[r], at.q[r], {of.maxima[r], total, kept_of_row},
                                      lane % 4 == 0, most);
      store_row(at, r, factor, most, ahead);
    }
  }
};

}  // namespace kernels
