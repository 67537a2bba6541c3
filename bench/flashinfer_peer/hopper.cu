// FlashInfer's batch prefill over a paged cache with FA3's kernels for Hopper.
#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>
#include <flashinfer/attention/scheduler.cuh>

#include "bench/flashinfer_peer/batch.h"

namespace attn::flashinfer_peer {
namespace {

namespace fi = ::flashinfer;
using Element = cutlass::bfloat16_t;
using Index = std::int32_t;
using Params = fi::BatchPrefillPagedParams<Element, Element, Element, Index>;
constexpr int kNoWindow = -1;
constexpr float kScale = 0.08838834764831845f;  // 1 / sqrt(kDim)

void place_plan(Params& params, const Memory& ints, const fi::PrefillPlanSM90Info& plan) {
  params.qo_tile_indices = part<Index>(ints, plan.qo_tile_indices_offset);
  params.qo_indptr = part<Index>(ints, plan.qo_indptr_offset);
  params.kv_indptr = part<Index>(ints, plan.kv_indptr_offset);
  params.qo_lens = part<Index>(ints, plan.qo_len_offset);
  params.kv_lens = part<Index>(ints, plan.kv_len_offset);
  params.head_indices = part<Index>(ints, plan.head_indices_offset);
  params.work_indptr = part<Index>(ints, plan.work_indptr_offset);
  params.batch_indices = part<Index>(ints, plan.batch_indices_offset);
}

void place_strides(Params& params, const Strides& strides) {
  params.q_stride_n = params.o_stride_n = kQueryHeads * kDim;
  params.q_stride_h = params.o_stride_h = kDim;
  params.k_stride_n = params.v_stride_n = strides.key;
  params.k_stride_h = params.v_stride_h = strides.head;
  params.k_page_stride = params.v_page_stride = strides.page;
}

Params params_of(const Batch& batch, const fi::PrefillPlanSM90Info& plan) {
  Params params = {};
  params.q_ptr = reinterpret_cast<Element*>(batch.queries());
  params.k_ptr = reinterpret_cast<Element*>(batch.keys());
  params.v_ptr = reinterpret_cast<Element*>(batch.values());
  params.o_ptr = reinterpret_cast<Element*>(batch.outputs());
  params.kv_indices = part<Index>(batch.pages, 0);
  params.additional_params.sm_scale = kScale;
  place_plan(params, batch.workspace->ints, plan);
  place_strides(params, batch.strides);
  params.nnz_qo = batch.rows();
  params.num_qo_heads = kQueryHeads;
  params.num_kv_heads = kHeads;
  params.group_size = kGroup;
  params.page_size = batch.facts.page;
  params.window_left = kNoWindow;
  params.causal = !batch.facts.one_row();
  return params;
}

template <fi::MaskMode kMask>
Run run_of(Params params, bool early) {
  return [params, early](cudaStream_t stream) mutable {
    check(
        fi::BatchPrefillWithPagedKVCacheDispatched<kDim, kDim, kMask, /*LEFT_SLIDING_WINDOW=*/false,
                                                   /*SAME_SCHEDULE_FOR_ALL_HEADS=*/false,
                                                   fi::StandardAttention, Params>(params, early,
                                                                                  stream),
        "batch prefill with FA3");
  };
}

Run plan_hopper(const Batch& batch, cudaStream_t stream) {
  const Workspace& space = *batch.workspace;
  const bool causal = !batch.facts.one_row();
  fi::PrefillPlanSM90Info plan;
  check(fi::PrefillSM90Plan(
            space.floats.get(), space.kFloatBytes, space.ints.get(), space.pinned.get(),
            space.kIntBytes, plan, batch.host_row_starts(), batch.host_page_starts(),
            batch.host_lengths(), batch.rows(), batch.facts.sequences(), kQueryHeads, kHeads, kDim,
            kDim, batch.facts.page, causal, batch.options.graph_plan, sizeof(Element), stream),
        "PrefillSM90Plan");
  if (plan.same_schedule_for_all_heads)
    throw Refusal("more tiles than one schedule per head allows: its kernel is not compiled");
  const Params params = params_of(batch, plan);
  const bool early = batch.options.programmatic_launch;
  return causal ? run_of<fi::MaskMode::kCausal>(params, early)
                : run_of<fi::MaskMode::kNone>(params, early);
}

}  // namespace

Kernel hopper_kernel() { return {"prefill_fa3", plan_hopper}; }

}  // namespace attn::flashinfer_peer
