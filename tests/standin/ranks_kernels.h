// The kernels of ranks (compiler/device/attn/ranks.cuh) in the stand-in driver: it runs them as
// they are, because what ranks exchange depends on them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace attn::standin {

using Arguments = std::vector<std::vector<std::byte>>;  // the bytes of each

bool is_kernel_of_ranks(const std::string& name);
// Thread-safe.
void run_kernel_of_ranks(const std::string& name, const Arguments& arguments, unsigned blocks,
                         unsigned threads);

}  // namespace attn::standin
