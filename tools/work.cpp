#include "tools/work.h"

#include <algorithm>

namespace attn::tools {

using ir::Dim;

double dense_flops(const ir::Attention& attention, plan::Direction direction) {
  const ir::Dims& d = attention.dims;
  const std::int64_t width = direction == plan::Direction::forward
                                 ? d[Dim::Dqk] + d[Dim::Dv]
                                 : 3 * d[Dim::Dqk] + 2 * d[Dim::Dv];
  return 2.0 * static_cast<double>(d[Dim::B] * d[Dim::Hq]) * static_cast<double>(d[Dim::Sq]) *
         static_cast<double>(d[Dim::Skv]) * static_cast<double>(width);
}

double band_share(const ir::Attention& attention, const passes::Band& band) {
  const std::int64_t rows = attention.dims[Dim::Sq];
  const std::int64_t columns = attention.dims[Dim::Skv];
  double visible = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t last = band.right ? std::min(columns - 1, row + *band.right) : columns - 1;
    const std::int64_t first = band.left ? std::max<std::int64_t>(0, row - *band.left) : 0;
    visible += static_cast<double>(std::max<std::int64_t>(0, last - first + 1));
  }
  return visible / (static_cast<double>(rows) * static_cast<double>(columns));
}

double visible_flops(const ir::Attention& attention, plan::Direction direction) {
  return dense_flops(attention, direction) *
         band_share(attention, passes::full_band(passes::mask_form(attention), attention.dims));
}

}  // namespace attn::tools
