#include "tools/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace attn::tools {

std::int64_t host_memory_bytes() {
  std::int64_t bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  for (const char* path : {"/sys/fs/cgroup/memory.max",  // version 2; "max" is no limit
                           "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::int64_t limit = 0;
    if (std::ifstream(path) >> limit) bytes = std::min(bytes, limit);
  }
  return bytes;
}

}  // namespace attn::tools
