// FlashInfer's BatchAttention: one persistent kernel whose schedule splits decodes and chunks
// alike.
#include <array>
#include <flashinfer/attention/persistent.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/fastdiv.cuh>

#include "bench/flashinfer_peer/fa2.h"

namespace attn::flashinfer_peer {
namespace {

namespace fi = ::flashinfer;
using Plan = fi::HolisticPlanInfo<2>;

// Scores are scaled and nothing else.
struct ScaledScores : fi::AttentionVariantBase {
  static constexpr bool use_logits_soft_cap = false;
  float sm_scale_log2;

  template <typename Params>
  __device__ __host__ ScaledScores(const Params& params, std::uint32_t, std::uint8_t*)
      : sm_scale_log2(params.sm_scale * fi::math::log2e) {}
};

// Members by the names that the kernel reads.
struct Params {
  using DTypeQ = Element;
  using DTypeKV = Element;
  using DTypeO = Element;
  using IdType = Index;

  Element *q, *k, *v;
  Element *partial_o, *final_o;
  float *partial_lse, *final_lse;
  Index *q_indptr, *kv_indptr, *partial_indptr, *kv_indices, *q_len, *kv_len;
  Index *q_start, *kv_start, *kv_end, *kv_head_idx_arr, *work_indptr, *len_kv_chunk;
  Index *merge_indptr, *merge_o_indices, *num_packed_qo_len;
  std::uint32_t num_kv_heads;
  fi::uint_fastdiv gqa_group_size, page_size;
  std::uint32_t q_stride_n, q_stride_h;
  std::uint32_t k_stride_page, k_stride_n, k_stride_h;
  std::uint32_t v_stride_page, v_stride_n, v_stride_h;
  std::uint32_t k_sf_stride_page, k_sf_stride_n, k_sf_stride_h;  // scales of 4-bit caches
  std::uint32_t v_sf_stride_page, v_sf_stride_n, v_sf_stride_h;
  float sm_scale, logits_soft_cap, v_scale;
};

void place_tensors(Params& params, const Batch& batch) {
  params.q = batch.queries();
  params.k = batch.keys();
  params.v = batch.values();
  params.final_o = batch.outputs();
  params.kv_indices = part<Index>(batch.pages, 0);
  params.num_kv_heads = kHeads;
  params.gqa_group_size = fi::uint_fastdiv(kGroup);
  params.page_size = fi::uint_fastdiv(batch.facts.page);
  params.q_stride_n = kQueryHeads * kDim;
  params.q_stride_h = kDim;
  params.k_stride_page = params.v_stride_page = static_cast<std::uint32_t>(batch.strides.page);
  params.k_stride_n = params.v_stride_n = static_cast<std::uint32_t>(batch.strides.key);
  params.k_stride_h = params.v_stride_h = static_cast<std::uint32_t>(batch.strides.head);
  params.sm_scale = kScale;
  params.v_scale = 1;
}

void place_task(Params& params, const Memory& ints, const Plan& plan, int task) {
  const auto& places = plan.tasks[task];
  params.q_indptr = part<Index>(ints, places.q_indptr_offset);
  params.kv_indptr = part<Index>(ints, places.kv_indptr_offset);
  params.partial_indptr = part<Index>(ints, places.partial_indptr_offset);
  params.q_len = part<Index>(ints, places.q_len_offset);
  params.kv_len = part<Index>(ints, places.kv_len_offset);
  params.q_start = part<Index>(ints, places.q_start_offset);
  params.kv_start = part<Index>(ints, places.kv_start_offset);
  params.kv_end = part<Index>(ints, places.kv_end_offset);
  params.kv_head_idx_arr = part<Index>(ints, places.kv_head_idx_offset);
  params.work_indptr = part<Index>(ints, places.work_indptr_offset);
  params.len_kv_chunk = part<Index>(ints, plan.len_kv_chunk_offset) + task;
}

void place_merge(Params& params, const Workspace& space, const Plan& plan) {
  params.partial_o = part<Element>(space.floats, plan.partial_o_offset);
  params.partial_lse = part<float>(space.floats, plan.partial_lse_offset);
  params.merge_indptr = part<Index>(space.ints, plan.merge_indptr_offset);
  params.merge_o_indices = part<Index>(space.ints, plan.merge_o_indices_offset);
  params.num_packed_qo_len = part<Index>(space.ints, plan.num_qo_len_offset);
}

std::array<Params, 2> params_of(const Batch& batch, const Plan& plan) {
  std::array<Params, 2> both = {};
  for (int task = 0; task < 2; ++task) {
    place_tensors(both[task], batch);
    place_task(both[task], batch.workspace->ints, plan, task);
    place_merge(both[task], *batch.workspace, plan);
  }
  return both;
}

template <fi::MaskMode kMask>
Run run_of(const std::array<Params, 2>& both, const Plan& plan) {
  const auto x = static_cast<std::uint32_t>(plan.num_blks_x);
  const auto y = static_cast<std::uint32_t>(plan.num_blks_y);
  return [both, x, y](cudaStream_t stream) {
    check(fi::BatchPagedAttentionPersistent<128, 16, kDim, kDim, kMask, ScaledScores>(
              both[0], both[1], x, y, stream),
          "BatchAttention");
  };
}

Run plan_persistent(const Batch& batch, cudaStream_t stream) {
  const Workspace& space = *batch.workspace;
  const bool causal = !batch.facts.one_row();
  Plan plan;
  check(fi::TwoStageHolisticPlan<Index>(space.floats.get(), space.kFloatBytes, space.ints.get(),
                                        space.pinned.get(), space.kIntBytes, plan,
                                        batch.host_row_starts(), batch.host_page_starts(),
                                        batch.host_lengths(), batch.facts.sequences(), kQueryHeads,
                                        kHeads, kDim, causal, stream),
        "TwoStageHolisticPlan");
  const std::array<Params, 2> both = params_of(batch, plan);
  return causal ? run_of<fi::MaskMode::kCausal>(both, plan)
                : run_of<fi::MaskMode::kNone>(both, plan);
}

}  // namespace

Kernel persistent_kernel() { return {"persistent", plan_persistent}; }

}  // namespace attn::flashinfer_peer
