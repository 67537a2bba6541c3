// Amounts of memory for messages.
#pragma once

#include <string>

namespace attn::support {

// An amount and the limit that it exceeds.
struct Excess {
  std::string amount;  // "68.8 GB"
  std::string most;    // "68.7 GB"
};

// Both numbers in GB, with just enough digits to differ: never "69 GB, at most 69 GB".
Excess excess(double bytes, double most);

}  // namespace attn::support
