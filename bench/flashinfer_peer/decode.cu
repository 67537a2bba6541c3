// FlashInfer's batch decode with CUDA cores.
#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>

#include "bench/flashinfer_peer/fa2.h"

namespace attn::flashinfer_peer {
namespace {

namespace fi = ::flashinfer;
using Params = fi::BatchDecodeParams<Element, Element, Element, Index>;

Params params_of(const Batch& batch, const fi::DecodePlanInfo& plan) {
  const Memory& ints = batch.workspace->ints;
  Params params(batch.queries(), /*q_rope_offset=*/nullptr, cache_of(batch), batch.outputs(),
                /*lse=*/nullptr, /*maybe_alibi_slopes=*/nullptr, kQueryHeads, kQueryHeads * kDim,
                kDim, kNoWindow, /*logits_soft_cap=*/0, kScale, /*rope_scale=*/1, /*rope_theta=*/1);
  params.request_indices = part<Index>(ints, plan.request_indices_offset);
  params.kv_tile_indices = part<Index>(ints, plan.kv_tile_indices_offset);
  params.o_indptr = part<Index>(ints, plan.o_indptr_offset);
  params.kv_chunk_size_ptr = part<Index>(ints, plan.kv_chunk_size_ptr_offset);
  if (plan.split_kv && plan.enable_cuda_graph)
    params.block_valid_mask = part<bool>(ints, plan.block_valid_mask_offset);
  params.padded_batch_size = static_cast<std::uint32_t>(plan.padded_batch_size);
  return params;
}

Run plan_decode(const Batch& batch, cudaStream_t stream) {
  if (!batch.facts.one_row()) throw Refusal("one row per sequence only");
  const Workspace& space = *batch.workspace;
  fi::DecodePlanInfo plan;
  check(fi::DecodePlan<kDim, fi::PosEncodingMode::kNone, Variant, Params>(
            space.floats.get(), space.kFloatBytes, space.ints.get(), space.pinned.get(),
            space.kIntBytes, plan, batch.host_page_starts(), batch.facts.sequences(), kQueryHeads,
            batch.facts.page, batch.options.graph_plan, stream,
            fi::BatchDecodeWithPagedKVCacheWorkEstimationDispatched<
                kGroup, kDim, fi::PosEncodingMode::kNone, Variant, Params>),
        "DecodePlan");
  const Params params = params_of(batch, plan);
  auto* const values = plan.split_kv ? part<Element>(space.floats, plan.v_offset) : nullptr;
  auto* const sums = plan.split_kv ? part<float>(space.floats, plan.s_offset) : nullptr;
  const bool early = batch.options.programmatic_launch;
  return [=](cudaStream_t on) {
    check(fi::BatchDecodeWithPagedKVCacheDispatched<kDim, fi::PosEncodingMode::kNone, Variant>(
              params, values, sums, early, on),
          "batch decode");
  };
}

}  // namespace

Kernel decode_kernel() { return {"decode", plan_decode}; }

}  // namespace attn::flashinfer_peer
