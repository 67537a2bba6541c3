#include "tests/standin/own_kernels.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "tests/host/gpu/own_kernels.h"

namespace attn::standin {
namespace {

template <auto kKernel>
void call(void* const* arguments) {
  call_with(kKernel, arguments);
}

HostKernel find(const std::string& name) {
  if (name == "attn_ranks_copy") return call<attn_ranks_copy>;
  if (name == "attn_ranks_merge") return call<attn_ranks_merge>;
  if (name == "attn_append_rows") return call<attn_append_rows>;
  if (name == "attn_merge_results") return call<attn_merge_results>;
  if (name == "attn_check_control") return call<attn_check_control>;
  return name == "attn_ranks_mark" ? call<attn_ranks_mark> : nullptr;
}

void run_in_warps(HostKernel kernel, unsigned blocks, unsigned threads, void* const* places) {
  const std::string failure = gpu::run(kernel, places, {blocks, threads}, gpu::Order::early_copies);
  if (failure.empty()) return;
  std::fprintf(stderr, "a kernel cannot end: %s\n", failure.c_str());
  std::abort();
}

}  // namespace

bool is_own_kernel(const std::string& name) { return find(name) != nullptr; }

void run_own_kernel(const std::string& name, const Arguments& arguments, unsigned blocks,
                    unsigned threads) {
  static std::mutex mutex;  // the numbers of blocks and threads are global
  const std::lock_guard lock(mutex);
  std::vector<void*> places;
  for (const std::vector<std::byte>& argument : arguments)
    places.push_back(const_cast<std::byte*>(argument.data()));
  if (name == "attn_merge_results") return run_in_warps(find(name), blocks, threads, places.data());
  blockDim.x = threads;
  for_each_thread(find(name), std::size_t{blocks} * threads, places.data());
}

}  // namespace attn::standin
