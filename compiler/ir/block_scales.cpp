#include "compiler/ir/block_scales.h"

#include <algorithm>
#include <cmath>

namespace attn::ir {
namespace {

std::int64_t up_to(std::int64_t multiple, std::int64_t size) {
  return (size + multiple - 1) / multiple * multiple;
}

}  // namespace

const BlockScale* find_block_scale(std::string_view name) {
  const auto* found = std::ranges::find(kBlockScales, name, &BlockScale::name);
  return found == std::end(kBlockScales) ? nullptr : found;
}

const Copy* find_copy(std::string_view name) {
  const auto* found = std::ranges::find(kCopies, name, &Copy::name);
  return found == std::end(kCopies) ? nullptr : found;
}

Sizes4 scale_dims(bool along_rows, const Sizes4& of) {
  const auto blocks = [](std::int64_t size) {
    return up_to(kTileBlocks, (size + kBlock - 1) / kBlock);
  };
  const auto elements = [](std::int64_t size) { return up_to(kTileElements, size); };
  return {of[0], of[1], along_rows ? blocks(of[2]) : elements(of[2]),
          along_rows ? elements(of[3]) : blocks(of[3])};
}

std::int64_t scale_place(bool along_rows, const Sizes4& scales, const Sizes4& at) {
  const std::int64_t matrix = at[0] * scales[1] + at[1], matrices = scales[0] * scales[1];
  const std::int64_t element = along_rows ? at[3] : at[2];
  const std::int64_t block = (along_rows ? at[2] : at[3]) / kBlock;
  const std::int64_t tiles_of_blocks = (along_rows ? scales[2] : scales[3]) / kTileBlocks;
  const std::int64_t tile_of_element = element / kTileElements;
  // Tiles of elements: along columns they are outermost, along rows within a matrix.
  const std::int64_t outer = along_rows ? tile_of_element * matrices + matrix
                                        : matrix * (scales[2] / kTileElements) + tile_of_element;
  const std::int64_t tile = outer * tiles_of_blocks + block / kTileBlocks;
  const std::int64_t row = element % kTileElements;
  return tile * kTileElements * kTileBlocks + row % kBlock * 16 + row / kBlock * kTileBlocks +
         block % kTileBlocks;
}

double block_scale(double amax, DType dtype) {
  if (!std::isfinite(amax)) return std::nan("");
  if (amax == 0) return from_e8m0_bits(0);
  int exponent = 0;
  const double fraction = std::frexp(amax / max_finite(dtype), &exponent);  // in [0.5, 1)
  if (fraction == 0.5) --exponent;
  return std::ldexp(1.0, std::clamp(exponent, -127, 127));
}

void round_block(std::span<double> block, DType dtype) {
  double amax = 0;
  for (const double value : block)
    amax = std::isnan(value) ? value : std::max(amax, std::abs(value));
  const double scale = block_scale(amax, dtype);
  for (double& value : block) value = round_to(dtype, value / scale) * scale;
}

}  // namespace attn::ir
