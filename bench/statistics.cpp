#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"

namespace attn::bench {

double quantile(std::vector<double> samples, double fraction) {
  ATTN_CHECK(!samples.empty(), "a quantile needs samples");
  std::sort(samples.begin(), samples.end());
  const double place = fraction * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, samples.size() - 1);
  return std::lerp(samples[below], samples[above], place - std::floor(place));
}

}  // namespace attn::bench
