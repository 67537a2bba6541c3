#include "tools/work.h"

#include "compiler/passes/cover.h"

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

double visible_flops(const ir::Attention& attention, plan::Direction direction) {
  const bool backward = direction == plan::Direction::backward;
  const passes::MaskForm form = passes::mask_form(passes::with_cover(attention, backward));
  return dense_flops(attention, direction) *
         passes::band_share(attention.dims, passes::full_band(form, attention.dims));
}

}  // namespace attn::tools
