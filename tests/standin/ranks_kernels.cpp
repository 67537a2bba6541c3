#include "tests/standin/ranks_kernels.h"

#include <mutex>

#include "tests/host/gpu/ranks_kernels.h"

namespace attn::standin {
namespace {

template <auto kKernel>
void call(void* const* arguments) {
  call_with(kKernel, arguments);
}

HostKernel find(const std::string& name) {
  if (name == "attn_ranks_copy") return call<attn_ranks_copy>;
  if (name == "attn_ranks_merge") return call<attn_ranks_merge>;
  return name == "attn_ranks_mark" ? call<attn_ranks_mark> : nullptr;
}

}  // namespace

bool is_kernel_of_ranks(const std::string& name) { return find(name) != nullptr; }

void run_kernel_of_ranks(const std::string& name, const Arguments& arguments, unsigned blocks,
                         unsigned threads) {
  static std::mutex mutex;  // the numbers of blocks and threads are global
  const std::lock_guard lock(mutex);
  std::vector<void*> places;
  for (const std::vector<std::byte>& argument : arguments)
    places.push_back(const_cast<std::byte*>(argument.data()));
  blockDim.x = threads;
  for_each_thread(find(name), std::size_t{blocks} * threads, places.data());
}

}  // namespace attn::standin
