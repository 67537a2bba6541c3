#include "compiler/engines/shared/blocks.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/ir/block_scales.h"
#include "compiler/target/capabilities.h"

namespace attn::engines {
namespace {

using target::Capability;

struct Shape {
  Dims4 dims, strides;
};

Shape turned_if(bool turned, Shape shape) {
  if (!turned) return shape;
  std::swap(shape.dims[2], shape.dims[3]);
  std::swap(shape.strides[2], shape.strides[3]);
  return shape;
}

// A copy lies in memory as what it copies.
Shape shape_of(const ir::Attention& attention, std::string_view name) {
  const ir::Copy* copy = ir::find_copy(name);
  const std::string_view of = copy != nullptr ? copy->of : name;
  return {stored_dims(attention, of), stored_strides(attention, of)};
}

const ir::BlockScale& scale_of(std::string_view name) {
  return *std::ranges::find(ir::kBlockScales, name, &ir::BlockScale::of);
}

DType narrow_type(const ir::Attention& attention, std::string_view name) {
  return attention.dtype_of(name.starts_with("do") ? "do" : "q");
}

}  // namespace

Status check_blocks(const ir::Attention& attention, const target::Context& context) {
  const SourcePos pos = attention.quantize->pos;
  if (!can(Capability::mxfp8_attention, context)) {
    return unsupported(pos,
                       "cuDNN computes attention with scales of blocks on compute capability 10.x",
                       "`quantize per_tensor` is served from compute capability 9.0 on");
  }
  const std::int64_t of_q = attention.dims[ir::Dim::Dqk], of_v = attention.dims[ir::Dim::Dv];
  const bool served = std::max(of_q, of_v) <= 128 || (of_q == 192 && of_v == 128);
  if (served) return {};
  return unsupported(pos,
                     fmt::format("cuDNN's attention with scales of blocks has head dimensions of "
                                 "at most 128, or 192 with 128; these are {} and {}",
                                 of_q, of_v));
}

Uid add_dequantized(const ir::Attention& attention, GraphBuilder& builder, const std::string& name,
                    bool turned) {
  const ir::BlockScale& scale = scale_of(name);
  const Shape of = shape_of(attention, name);
  const Dims4 scales = ir::scale_dims(scale.along_rows, of.dims);
  const Shape x = turned_if(turned, of), s = turned_if(turned, {scales, packed_strides(scales)});
  const Uid narrow = builder.add_tensor(name, narrow_type(attention, name), x.dims, x.strides);
  const Uid factors = builder.add_tensor(std::string(scale.name), DType::e8m0, s.dims, s.strides,
                                         {.reordering = graph::Reordering::f8_128x4});
  const Uid y = builder.add_virtual(DType::f32, x.dims, x.strides, name);
  builder.block_dequantize(narrow, factors, y, attention.pos);
  return y;
}

Uid add_unrounded(const ir::Attention& attention, GraphBuilder& builder) {
  const Shape of = shape_of(attention, "do_f16");
  return builder.add_tensor("do_f16", attention.dtype_of("o"), of.dims, of.strides);
}

}  // namespace attn::engines
