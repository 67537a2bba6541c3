// Types and constants that FlashInfer's decode and FA2 kernels share. Only its sources include it.
#pragma once

#include <cuda_bf16.h>

#include <flashinfer/attention/variants.cuh>
#include <flashinfer/page.cuh>

#include "bench/flashinfer_peer/batch.h"

namespace attn::flashinfer_peer {

using Element = __nv_bfloat16;
using Index = std::int32_t;
using Variant =
    ::flashinfer::DefaultAttention</*use_custom_mask=*/false, /*use_sliding_window=*/false,
                                   /*use_logits_soft_cap=*/false, /*use_alibi=*/false>;
constexpr int kNoWindow = -1;
constexpr float kScale = 0.08838834764831845f;  // 1 / sqrt(kDim)

inline ::flashinfer::paged_kv_t<Element, Index> cache_of(const Batch& batch) {
  const bool nhd = batch.layout == Layout::kNhd;
  return {kHeads,
          static_cast<std::uint32_t>(batch.facts.page),
          kDim,
          static_cast<std::uint32_t>(batch.facts.sequences()),
          nhd ? ::flashinfer::QKVLayout::kNHD : ::flashinfer::QKVLayout::kHND,
          batch.keys(),
          batch.values(),
          part<Index>(batch.pages, 0),
          part<Index>(batch.page_starts, 0),
          part<Index>(batch.last_page_keys, 0)};
}

}  // namespace attn::flashinfer_peer
