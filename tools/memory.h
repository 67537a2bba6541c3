// The memory available to this process.
#pragma once

#include <cstdint>

namespace attn::tools {

// Physical memory of the machine, or the limit of the process's control group if that is lower.
std::int64_t host_memory_bytes();

}  // namespace attn::tools
