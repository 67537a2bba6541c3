// A batch over a paged cache, and what FlashInfer's kernels are given of it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/flashinfer_peer/case_lines.h"

namespace attn::flashinfer_peer {

constexpr int kQueryHeads = 32;
constexpr int kHeads = 8;  // of keys and values
constexpr int kDim = 128;
constexpr int kGroup = kQueryHeads / kHeads;

// Throws std::runtime_error that names what failed.
void check(cudaError_t error, const char* what);

// Device memory, or pinned memory of the host, of this many bytes. Errors: as check.
using Memory = std::shared_ptr<void>;
Memory device_memory(std::size_t bytes);
Memory pinned_memory(std::size_t bytes);

// Order of a page's elements: [key, head, D] or [head, key, D].
enum class Layout { kNhd, kHnd };

// Starts: one more than the sequences, the last is the sum.
struct Tables {
  std::vector<std::int32_t> row_starts;
  std::vector<std::int32_t> page_starts;
  std::vector<std::int32_t> pages;  // of all sequences: a random permutation of the pool's
  std::vector<std::int32_t> last_page_keys;
  std::vector<std::int32_t> lengths;
};

// Elements between neighbours in a pool.
struct Strides {
  std::int64_t page = 0;
  std::int64_t key = 0;
  std::int64_t head = 0;
};

// Scratch memory of plans and runs, larger than what any case here needs; FlashInfer's plans refuse
// what exceeds it.
struct Workspace {
  static constexpr std::size_t kFloatBytes = std::size_t{1} << 30;
  static constexpr std::size_t kIntBytes = std::size_t{32} << 20;
  Memory floats = device_memory(kFloatBytes);
  Memory ints = device_memory(kIntBytes);
  Memory pinned = pinned_memory(kIntBytes);
};

struct Options {
  bool programmatic_launch = true;  // as FlashInfer's wrappers do on Hopper
  bool graph_plan = false;  // FlashInfer's plans for CUDA graphs: padded to the whole device
};

// Tensors are [rows, kQueryHeads, kDim]; pools have as many pages as the sequences need.
struct Batch {
  Case facts;
  Layout layout = Layout::kNhd;
  Tables host;
  Strides strides;
  Options options;
  Workspace* workspace = nullptr;  // not owned
  Memory q, k, v, o;
  Memory row_starts, page_starts, pages, last_page_keys;

  int rows() const { return host.row_starts.back(); }
  __nv_bfloat16* queries() const { return static_cast<__nv_bfloat16*>(q.get()); }
  __nv_bfloat16* keys() const { return static_cast<__nv_bfloat16*>(k.get()); }
  __nv_bfloat16* values() const { return static_cast<__nv_bfloat16*>(v.get()); }
  __nv_bfloat16* outputs() const { return static_cast<__nv_bfloat16*>(o.get()); }
  // Tables that plans read: FlashInfer takes pointers to what it does not change.
  std::int32_t* host_row_starts() const;
  std::int32_t* host_page_starts() const;
  std::int32_t* host_lengths() const;
};

// Tables with random pages, the same for the same case, and tensors of normally distributed
// elements. Errors: as check.
Batch make_batch(const Case& facts, Layout layout, const Options& options, Workspace& workspace);

// Enqueues the attention of a batch. Captures what it needs but the batch, which outlives it.
using Run = std::function<void(cudaStream_t stream)>;

// A kernel of FlashInfer. `plan` computes its schedule on the host and enqueues its copy to the
// device; the workspace holds it until the next plan. Throws Refusal, or FlashInfer's exceptions.
struct Kernel {
  std::string name;
  std::function<Run(const Batch& batch, cudaStream_t stream)> plan;
};

Kernel decode_kernel();             // CUDA cores; one row per sequence
Kernel tensor_core_kernel();        // FA2's prefill without a mask; one row per sequence
Kernel prefill_kernel();            // FA2's prefill, causal
Kernel hopper_kernel();             // FA3's prefill; without a mask if all have one row
Kernel persistent_kernel();         // BatchAttention, causal: one kernel for decodes and chunks
std::vector<Kernel> all_kernels();  // those that were compiled

// Part of FlashInfer's workspace at a plan's offset.
template <typename T>
T* part(const Memory& memory, std::int64_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(memory.get()) + offset);
}

}  // namespace attn::flashinfer_peer
