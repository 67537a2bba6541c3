// Amounts of memory in messages.
#pragma once

#include <string>

namespace attn::support {

// An amount and the most that is allowed, which is less.
struct Excess {
  std::string amount;  // "68.8 GB"
  std::string most;    // "68.7 GB"
};

// In GB, with as few digits as tell them apart: never "69 GB, at most 69 GB".
Excess excess(double bytes, double most);

}  // namespace attn::support
