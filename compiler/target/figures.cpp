#include "compiler/target/figures.h"

#include "compiler/target/gpu.h"

namespace attn::target {

const Figures& measured_figures() {
  static constexpr Figures kMeasured = {
#define ATTN_VALUE(figure, value) .figure = value,
#include "compiler/target/figure_values.def"
  };
  return kMeasured;
}

}  // namespace attn::target
