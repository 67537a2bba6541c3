#include "compiler/support/gigabytes.h"

#include <fmt/format.h>

namespace attn::support {

Excess excess(double bytes, double most) {
  constexpr int kBytes = 9;  // decimal places: one byte
  Excess words;
  for (int digits = 0; digits <= kBytes; ++digits) {
    words = {fmt::format("{:.{}f} GB", bytes / 1e9, digits),
             fmt::format("{:.{}f} GB", most / 1e9, digits)};
    if (words.amount != words.most) break;
  }
  return words;
}

}  // namespace attn::support
