// The kernels of libattn itself in the stand-in driver: those of ranks (compiler/device/attn/
// ranks.cuh), because what ranks exchange depends on them, and of append and merge
// (runtime/operations). It runs them as they are.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace attn::standin {

using Arguments = std::vector<std::vector<std::byte>>;  // the bytes of each

bool is_own_kernel(const std::string& name);
// Thread-safe.
void run_own_kernel(const std::string& name, const Arguments& arguments, unsigned blocks,
                    unsigned threads);

}  // namespace attn::standin
