// What a compiled kernel takes of a multiprocessor, read from a cubin (ELF) without CUDA.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace attn::tools {

struct KernelResources {
  std::int64_t registers = 0;    // of a thread, when the kernel begins
  std::int64_t stack_bytes = 0;  // of a thread: what spills, and arrays that are indexed
};

// Resources by the kernel's name. Any bytes may be given: in what is no cubin, or a damaged one,
// kernels are missing.
std::map<std::string, KernelResources> resources_of(std::string_view cubin);

}  // namespace attn::tools
