// Order statistics of samples.
#pragma once

#include <vector>

namespace attn::bench {

// The value below which `fraction` of the samples lie, interpolated between the two nearest (0.5:
// the median). Requires samples and 0 <= fraction <= 1.
double quantile(std::vector<double> samples, double fraction);

}  // namespace attn::bench
