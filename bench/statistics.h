// Order statistics of samples.
#pragma once

#include <vector>

namespace attn::bench {

// The quantile of the samples at `fraction` (0.5 is the median), linearly interpolated. Requires at
// least one sample and 0 <= fraction <= 1.
double quantile(std::vector<double> samples, double fraction);

}  // namespace attn::bench
