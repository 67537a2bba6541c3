#include "compiler/planning/figures.h"

#include "compiler/planning/gpu.h"

namespace attn::planning {

const Figures& measured_figures() {
  static constexpr Figures kMeasured = {
#define ATTN_VALUE(figure, value) .figure = value,
#include "compiler/planning/figure_values.def"
  };
  return kMeasured;
}

}  // namespace attn::planning
