#include <algorithm>
#include <numeric>
#include <random>

#include "bench/flashinfer_peer/batch.h"
#include "bench/flashinfer_peer/elements.h"

namespace attn::flashinfer_peer {
namespace {

__global__ void fill(__nv_bfloat16* data, std::uint64_t count, Tensor tensor) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    data[i] = element(tensor, i);
}

Memory filled(std::size_t count, Tensor tensor) {
  Memory memory = device_memory(count * sizeof(__nv_bfloat16));
  fill<<<1024, 256>>>(static_cast<__nv_bfloat16*>(memory.get()), count, tensor);
  check(cudaGetLastError(), "filling a tensor");
  return memory;
}

Memory copied(const std::vector<std::int32_t>& values) {
  const std::size_t bytes = values.size() * sizeof(std::int32_t);
  Memory memory = device_memory(bytes);
  check(cudaMemcpy(memory.get(), values.data(), bytes, cudaMemcpyHostToDevice), "copying a table");
  return memory;
}

Tables tables_of(const Case& facts) {
  Tables tables;
  tables.row_starts = {0};
  tables.page_starts = {0};
  for (int i = 0; i < facts.sequences(); ++i) {
    const int pages = (facts.lengths[i] + facts.page - 1) / facts.page;
    tables.row_starts.push_back(tables.row_starts.back() + facts.rows[i]);
    tables.page_starts.push_back(tables.page_starts.back() + pages);
    tables.last_page_keys.push_back(facts.lengths[i] - (pages - 1) * facts.page);
  }
  tables.lengths.assign(facts.lengths.begin(), facts.lengths.end());
  tables.pages.resize(tables.page_starts.back());
  std::iota(tables.pages.begin(), tables.pages.end(), 0);
  std::mt19937 random(1);
  std::shuffle(tables.pages.begin(), tables.pages.end(), random);
  return tables;
}

Strides strides_of(const Case& facts, Layout layout) {
  const std::int64_t page = std::int64_t{facts.page} * kHeads * kDim;
  return layout == Layout::kNhd ? Strides{page, kHeads * kDim, kDim}
                                : Strides{page, kDim, std::int64_t{facts.page} * kDim};
}

}  // namespace

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

Memory device_memory(std::size_t bytes) {
  void* data = nullptr;
  check(cudaMalloc(&data, std::max<std::size_t>(bytes, 1)), "allocating device memory");
  return Memory(data, cudaFree);
}

Memory pinned_memory(std::size_t bytes) {
  void* data = nullptr;
  check(cudaMallocHost(&data, bytes), "allocating pinned memory");
  return Memory(data, cudaFreeHost);
}

std::int32_t* Batch::host_row_starts() const {
  return const_cast<std::int32_t*>(host.row_starts.data());
}

std::int32_t* Batch::host_page_starts() const {
  return const_cast<std::int32_t*>(host.page_starts.data());
}

std::int32_t* Batch::host_lengths() const { return const_cast<std::int32_t*>(host.lengths.data()); }

Batch make_batch(const Case& facts, Layout layout, const Options& options, Workspace& workspace) {
  Batch batch;
  batch.facts = facts;
  batch.layout = layout;
  batch.options = options;
  batch.workspace = &workspace;
  batch.host = tables_of(facts);
  batch.strides = strides_of(facts, layout);
  const std::size_t rows = static_cast<std::size_t>(batch.rows()) * kQueryHeads * kDim;
  const std::size_t pool = batch.host.pages.size() * static_cast<std::size_t>(batch.strides.page);
  batch.q = filled(rows, Tensor::kQuery);
  batch.k = filled(pool, Tensor::kKey);
  batch.v = filled(pool, Tensor::kValue);
  batch.o = device_memory(rows * sizeof(__nv_bfloat16));
  batch.row_starts = copied(batch.host.row_starts);
  batch.page_starts = copied(batch.host.page_starts);
  batch.pages = copied(batch.host.pages);
  batch.last_page_keys = copied(batch.host.last_page_keys);
  return batch;
}

}  // namespace attn::flashinfer_peer
