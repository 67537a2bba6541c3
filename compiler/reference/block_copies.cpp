#include "compiler/reference/block_copies.h"

#include <algorithm>
#include <cmath>

#include "compiler/reference/blocks.h"

namespace attn::reference {
namespace {

const ir::BlockScale& scale_of(std::string_view tensor) {
  return *std::ranges::find(ir::kBlockScales, tensor, &ir::BlockScale::of);
}

// Divides the elements of each block by a new scale and rounds them; the scales.
io::HostTensor quantize(const ir::BlockScale& scale, DType dtype, io::HostTensor& x) {
  const ir::Sizes4 of{x.dims[0], x.dims[1], x.dims[2], x.dims[3]};
  const ir::Sizes4 dims = ir::scale_dims(scale.along_rows, of);
  io::HostTensor scales = zeros(DType::e8m0, {dims.begin(), dims.end()});
  const auto at = [&](std::size_t element) -> double& {
    auto left = static_cast<std::int64_t>(element);
    ir::Sizes4 index{};
    for (std::size_t axis = 4; axis-- > 0; left /= of[axis]) index[axis] = left % of[axis];
    const std::int64_t place = ir::scale_place(scale.along_rows, dims, index);
    return scales.values[static_cast<std::size_t>(place)];
  };
  for (std::size_t i = 0; i < x.values.size(); ++i) at(i) = std::max(at(i), std::abs(x.values[i]));
  for (double& amax : scales.values) amax = ir::block_scale(amax, dtype);
  for (std::size_t i = 0; i < x.values.size(); ++i)
    x.values[i] = round_to(dtype, x.values[i] / at(i));
  return scales;
}

}  // namespace

BlockCopy make_copy(const ir::Attention& attention, const ir::Copy& copy, io::HostTensor x,
                    const io::HostTensor& scales) {
  const DType dtype = attention.dtype_of(copy.of);
  for (double& value : x.values) value = round_to(dtype, value);
  apply_block_scales(scales, scale_of(copy.of).along_rows, x);
  BlockCopy made;
  if (copy.is_narrow) {
    x.dtype = dtype;
    made.scales = quantize(scale_of(copy.name), dtype, x);
  } else {
    x.dtype = attention.dtype_of("o");
    for (double& value : x.values) value = round_to(x.dtype, value);
  }
  made.elements = in_layout(attention, copy, x);
  return made;
}

}  // namespace attn::reference
