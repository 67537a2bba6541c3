// FlashInfer's batch prefill over a paged cache with FA2's tensor core kernels, which also serves
// its decodes with tensor cores.
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/scheduler.cuh>

#include "bench/flashinfer_peer/fa2.h"

namespace attn::flashinfer_peer {
namespace {

namespace fi = ::flashinfer;
using Params = fi::BatchPrefillPagedParams<Element, Element, Element, Index>;

// What a run adds to the parameters.
struct Launch {
  Params params;
  Element* values = nullptr;  // of parts, merged afterwards; null without parts
  float* sums = nullptr;
  bool early = false;  // programmatic launch
};

void place_plan(Params& params, const Memory& ints, const fi::PrefillPlanInfo& plan) {
  params.request_indices = part<Index>(ints, plan.request_indices_offset);
  params.qo_tile_indices = part<Index>(ints, plan.qo_tile_indices_offset);
  params.kv_tile_indices = part<Index>(ints, plan.kv_tile_indices_offset);
  params.o_indptr = part<Index>(ints, plan.o_indptr_offset);
  params.kv_chunk_size_ptr = part<Index>(ints, plan.kv_chunk_size_ptr_offset);
  if (plan.split_kv) params.merge_indptr = part<Index>(ints, plan.merge_indptr_offset);
  if (plan.split_kv && plan.enable_cuda_graph)
    params.block_valid_mask = part<bool>(ints, plan.block_valid_mask_offset);
  if (plan.enable_cuda_graph)
    params.total_num_rows = part<std::uint32_t>(ints, plan.total_num_rows_offset);
  params.padded_batch_size = static_cast<std::uint32_t>(plan.padded_batch_size);
  params.max_total_num_rows = static_cast<std::uint32_t>(plan.total_num_rows);
}

Launch launch_of(const Batch& batch, const fi::PrefillPlanInfo& plan) {
  const Workspace& space = *batch.workspace;
  Launch launch;
  launch.params =
      Params(batch.queries(), cache_of(batch), /*maybe_custom_mask=*/nullptr,
             part<Index>(batch.row_starts, 0), /*maybe_mask_indptr=*/nullptr,
             /*maybe_q_rope_offset=*/nullptr, batch.outputs(), /*lse=*/nullptr,
             /*maybe_alibi_slopes=*/nullptr, kQueryHeads, kQueryHeads * kDim, kDim, kNoWindow,
             /*logits_soft_cap=*/0, kScale, /*rope_scale=*/1, /*rope_theta=*/1);
  place_plan(launch.params, space.ints, plan);
  if (plan.split_kv) {
    launch.values = part<Element>(space.floats, plan.v_offset);
    launch.sums = part<float>(space.floats, plan.s_offset);
  }
  launch.early = batch.options.programmatic_launch;
  return launch;
}

template <int kTile, fi::MaskMode kMask>
Run run_of(const Launch& launch) {
  return [launch](cudaStream_t stream) {
    check(fi::BatchPrefillWithPagedKVCacheDispatched<kTile, kDim, kDim, fi::PosEncodingMode::kNone,
                                                     /*USE_FP16_QK_REDUCTION=*/false, kMask,
                                                     Variant, Params>(
              launch.params, launch.values, launch.sums, launch.early, stream),
          "batch prefill");
  };
}

fi::PrefillPlanInfo planned(const Batch& batch, cudaStream_t stream) {
  const Workspace& space = *batch.workspace;
  fi::PrefillPlanInfo plan;
  check(fi::PrefillPlan<Index>(
            space.floats.get(), space.kFloatBytes, space.ints.get(), space.pinned.get(),
            space.kIntBytes, plan, batch.host_row_starts(), batch.host_page_starts(), batch.rows(),
            batch.facts.sequences(), kQueryHeads, kHeads, kDim, kDim, batch.facts.page,
            batch.options.graph_plan, sizeof(Element), kNoWindow,
            /*fixed_split_size=*/-1, /*disable_split_kv=*/false,
            /*num_colocated_ctas=*/0, /*uniform_q_len=*/0, stream, sizeof(Element)),
        "PrefillPlan");
  return plan;
}

Run plan_tensor_cores(const Batch& batch, cudaStream_t stream) {
  if (!batch.facts.one_row()) throw Refusal("one row per sequence only");
  const fi::PrefillPlanInfo plan = planned(batch, stream);
  if (plan.cta_tile_q != 16) throw Refusal("the plan's tile is not compiled");
  return run_of<16, fi::MaskMode::kNone>(launch_of(batch, plan));
}

Run plan_prefill(const Batch& batch, cudaStream_t stream) {
  const fi::PrefillPlanInfo plan = planned(batch, stream);
  const Launch launch = launch_of(batch, plan);
  switch (plan.cta_tile_q) {
    case 16: return run_of<16, fi::MaskMode::kCausal>(launch);
    case 64: return run_of<64, fi::MaskMode::kCausal>(launch);
    case 128: return run_of<128, fi::MaskMode::kCausal>(launch);
    default: throw Refusal("the plan's tile is not compiled");
  }
}

}  // namespace

Kernel tensor_core_kernel() { return {"decode_tc", plan_tensor_cores}; }

Kernel prefill_kernel() { return {"prefill", plan_prefill}; }

}  // namespace attn::flashinfer_peer
