#include "compiler/engines/shared/quantized.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/staging.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/ir/block_scales.h"
#include "compiler/target/capabilities.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::engines {
namespace {

using target::Capability;

constexpr Dims4 kOne{1, 1, 1, 1};

Uid scalar(GraphBuilder& builder, const std::string& name) {
  return builder.add_tensor(name, DType::f32, kOne, kOne, {.alignment = captured_alignment(name)});
}

Uid scaled(GraphBuilder& builder, Uid x, std::string_view scale, Uid y, SourcePos pos) {
  builder.pointwise(PointwiseMode::mul, DType::f32, x, scalar(builder, std::string(scale)), y, pos);
  return y;
}

bool changes_scores(const ir::Attention& attention, const masks::MaskForm& form) {
  return !attention.dag[attention.score].is(ir::Op::score_) || !form.residual.empty();
}

// A row of the table of what 8-bit attention may have.
struct Limit {
  Capability capability;
  bool (*concerns)(const ir::Attention& attention, const masks::MaskForm& form);
  const char* message;
  const char* help;
};
constexpr Limit kLimits[] = {
    {Capability::fp8_scores, changes_scores,
     "cuDNN computes 8-bit attention with score expressions, or with other masks than bands, "
     "incorrectly",
     "`dtype bf16;`"},
    {Capability::fp8_dropout,
     [](const ir::Attention& a, const masks::MaskForm&) { return a.dropout.has_value(); },
     "cuDNN's 8-bit attention with dropout writes to memory that is not its own",
     "`dtype bf16;`, or remove `dropout`"},
    {Capability::fp8_half_output,
     [](const ir::Attention& a, const masks::MaskForm&) { return !is_fp8(a.dtype_of("o")); },
     "here, cuDNN's 8-bit attention has no 16-bit output",
     "o may be `e4m3`; compute capability 10.0 has 16-bit outputs with cuDNN 9.13 or newer"},
    {Capability::fp8_bottom_right,
     [](const ir::Attention&, const masks::MaskForm& form) {
       return form.from_end.left || form.from_end.right;
     },
     "here, cuDNN's 8-bit attention has no mask that ends at each batch's last key",
     "`align top_left`, or no lengths"},
    {Capability::fp8_lengths,
     [](const ir::Attention& a, const masks::MaskForm&) {
       return (a.lengths_q || a.lengths_kv) && addressed_by(a, "q").empty();
     },
     "here, cuDNN computes 8-bit attention with `lengths` incorrectly",
     "`layout thd;` without `grad`, or `dtype bf16;`"},
    {Capability::fp8_statistics,
     [](const ir::Attention& a, const masks::MaskForm&) { return a.wants_max || a.wants_sum_exp; },
     "here, cuDNN's 8-bit attention computes `max` and `sum_exp` incorrectly", "use `lse`"},
    {Capability::fp8_ragged,
     [](const ir::Attention& a, const masks::MaskForm&) {
       return !addressed_by(a, "q").empty() || !addressed_by(a, "k").empty();
     },
     "here, cuDNN's 8-bit attention does not support `thd` and pages", "use `layout bshd;`"},
};

Status check_depth(const ir::Attention& attention, const target::Context& context) {
  const std::int64_t of_q = attention.dims[ir::Dim::Dqk], of_v = attention.dims[ir::Dim::Dv];
  const std::int64_t most = limit(Capability::fp8_depth, context);
  if (std::max(of_q, of_v) <= most) return {};
  return unsupported(attention.quantize->pos,
                     fmt::format("here, cuDNN's 8-bit attention has head dimensions of at most {}; "
                                 "these are {} and {}",
                                 most, of_q, of_v));
}

Error without_backward(const ir::Attention& attention, std::string message, std::string help = "") {
  return unsupported(attention.quantize->pos,
                     "here, cuDNN's backward of 8-bit attention " + message, std::move(help));
}

bool ends_within_tile(const ir::Attention& attention) {
  constexpr std::int64_t kOfTile = 128;
  return attention.dims[ir::Dim::Sq] % kOfTile != 0 || attention.dims[ir::Dim::Skv] % kOfTile != 0;
}

}  // namespace

Status check_quantized_backward(const ir::Attention& attention, const masks::MaskForm& form,
                                const target::Context& context) {
  if (!attention.quantize) return {};
  if (!can(Capability::fp8_backward, context)) return without_backward(attention, "is missing");
  ATTN_RETURN_IF_ERROR(check_quantized(attention, form, context));
  if (attention.is_mxfp8() && attention.dtype != DType::e4m3) {
    return without_backward(attention, "needs q, k and v in `e4m3` beside scales of blocks",
                            "`do: e5m2` is served");
  }
  constexpr std::int64_t kMost = 128;
  const std::int64_t least = limit(Capability::fp8_backward_least_depth, context);
  for (const ir::Dim dim : {ir::Dim::Dqk, ir::Dim::Dv}) {
    const std::int64_t depth = attention.dims[dim];
    if (least <= depth && depth <= kMost) continue;
    return without_backward(
        attention, fmt::format("needs head dimensions {} {}; {} is {}",
                               least == kMost ? "of" : "of at most", kMost, to_string(dim), depth));
  }
  if (!is_fp8(attention.dtype_of("dq")) && !can(Capability::fp8_half_output, context)) {
    return without_backward(attention, "has no 16-bit gradients", "`gradients: e5m2` or `e4m3`");
  }
  if (!addressed_by(attention, "q").empty() && !can(Capability::fp8_backward_ragged, context)) {
    return without_backward(attention, "does not support `thd`", "use `layout bshd;`");
  }
  if (ends_within_tile(attention)) {
    return without_backward(attention, "needs Sq and Skv that are multiples of 128");
  }
  if (!attention.deterministic) return {};  // the last: without the clause, it is served
  return without_backward(attention, "is not known to be the same in every run",
                          "remove `deterministic`");
}

Status check_quantized(const ir::Attention& attention, const masks::MaskForm& form,
                       const target::Context& context) {
  if (!attention.quantize) return {};
  for (const Limit& row : kLimits) {
    if (can(row.capability, context) || !row.concerns(attention, form)) continue;
    return unsupported(attention.quantize->pos, row.message, row.help);
  }
  if (attention.is_mxfp8()) return check_blocks(attention, context);
  return check_depth(attention, context);
}

Value times_scales(const ir::Attention& attention, GraphBuilder& builder, Value x,
                   std::initializer_list<std::string_view> scales) {
  for (const std::string_view scale : scales) {
    x.uid = scaled(builder, x.uid, scale, builder.add_scores(DType::f32), attention.pos);
  }
  return x;
}

Uid times_row_scale(const ir::Attention& attention, GraphBuilder& builder, Uid x,
                    std::string_view scale) {
  return scaled(builder, x, scale, builder.add_rows(), attention.pos);
}

void store_amax(const ir::Attention& attention, GraphBuilder& builder, Uid x,
                const std::string& name) {
  builder.reduce(graph::ReduceOp::amax, x, scalar(builder, name), attention.pos);
}

Value quantized_weights(const ir::Attention& attention, GraphBuilder& builder, Value weights) {
  store_amax(attention, builder, weights.uid, "amax_s");
  return narrowed(attention, builder, weights, "scale_s", attention.dtype);
}

void times_quantized_value(const ir::Attention& attention, GraphBuilder& builder, Value weights,
                           const Lengths& lengths) {
  const Dims4 dims = staged_dims(attention, "o");
  const auto product = [&] { return builder.add_virtual(DType::f32, dims, packed_strides(dims)); };
  const SourcePos pos = attention.pos;
  const Uid v = add_operand(attention, builder, "v", lengths);
  const Uid sum = product();
  builder.matmul(weights.uid, v, sum, pos, {.m = lengths.q, .k = lengths.kv});
  const Uid by_weights = scaled(builder, sum, "descale_s", product(), pos);
  const Uid whole = scaled(builder, by_weights, "descale_v", product(), pos);
  const Uid o = add_operand(attention, builder, "o", lengths);
  if (is_fp8(attention.dtype_of("o"))) {
    scaled(builder, whole, "scale_o", o, pos);
  } else {
    builder.pointwise(PointwiseMode::mul, DType::f32, whole, builder.constant(DType::f32, 1).uid, o,
                      pos);
  }
  store_amax(attention, builder, whole, "amax_o");
}

void store_quantized_gradient(const ir::Attention& attention, GraphBuilder& builder, Uid sum,
                              std::initializer_list<std::string_view> scales,
                              const std::string& name, Uid to) {
  const Dims4 dims = staged_dims(attention, name);
  for (const std::string_view scale : scales) {
    const Uid y = builder.add_virtual(DType::f32, dims, packed_strides(dims));
    sum = scaled(builder, sum, scale, y, attention.pos);
  }
  if (is_fp8(attention.dtype_of(name))) {
    scaled(builder, sum, "scale_" + name, to, attention.pos);
  } else {
    builder.pointwise(PointwiseMode::mul, DType::f32, sum, builder.constant(DType::f32, 1).uid, to,
                      attention.pos);
  }
  store_amax(attention, builder, sum, "amax_" + name);
}

Value narrowed(const ir::Attention& attention, GraphBuilder& builder, Value x,
               std::string_view scale, DType dtype) {
  return {scaled(builder, x.uid, scale, builder.add_scores(dtype), attention.pos), dtype,
          Place::element};
}

std::span<const char* const> amax_of_gradients(const ir::Attention& attention) {
  static constexpr const char* kNames[] = {"amax_dp", "amax_dq", "amax_dk", "amax_dv"};
  return std::span(kNames).subspan(attention.is_mxfp8() ? 1 : 0);
}

std::vector<plan::TensorInfo> unwanted_amax(const ir::Attention& attention) {
  std::vector<plan::TensorInfo> internals;
  if (!attention.quantize) return internals;
  for (const ir::Output& output : ir::kOutputs) {
    if (!ir::is_amax(output.name) || attention.*output.wanted) continue;
    if (attention.is_mxfp8() && output.name == "amax_s") continue;
    internals.push_back(plan::internal_tensor(std::string(output.name), DType::f32, {1}));
  }
  return internals;
}

namespace {

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
                       "`quantize per_tensor` is served from compute capability 8.0 on");
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
