// How much memory this process may have.
#pragma once

#include <cstdint>

namespace attn::tools {

// The machine's memory, or less where the control group of the process allows less.
std::int64_t host_memory_bytes();

}  // namespace attn::tools
