#include "compiler/engines/shared/graph_builder.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "compiler/ir/block_scales.h"
#include "runtime/base/check.h"

namespace attn::engines {
namespace {

std::vector<std::int64_t> to_vector(const Dims4& dims) { return {dims.begin(), dims.end()}; }

bool same_scalar(const plan::OperandSource& x, const plan::OperandSource& y) {
  const auto* a = std::get_if<plan::ConstantOperand>(&x);
  const auto* b = std::get_if<plan::ConstantOperand>(&y);
  if (a == nullptr || b == nullptr) return x == y;
  return a->dtype == b->dtype &&
         std::bit_cast<std::uint64_t>(a->value) == std::bit_cast<std::uint64_t>(b->value);
}

}  // namespace

Dims4 packed_strides(const Dims4& dims) {
  Dims4 strides{};
  std::int64_t next = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    strides[i] = next;
    next *= dims[i];
  }
  return strides;
}

Uid GraphBuilder::add(graph::Tensor tensor) {
  tensor.uid = static_cast<Uid>(step_.graph.tensors.size()) + 1;
  step_.graph.tensors.push_back(std::move(tensor));
  return step_.graph.tensors.back().uid;
}

Uid GraphBuilder::add_scores(DType dtype, std::string name) {
  return add({.name = std::move(name),
              .dtype = dtype,
              .dims = to_vector(scores_),
              .strides = to_vector(packed_strides(scores_))});
}

Uid GraphBuilder::add_rows(std::string name) {
  const Dims4 dims{scores_[0], scores_[1], scores_[2], 1};
  return add({.name = std::move(name),
              .dims = to_vector(dims),
              .strides = to_vector(packed_strides(dims))});
}

Uid GraphBuilder::add_virtual(DType dtype, const Dims4& dims, const Dims4& strides,
                              std::string name) {
  return add({.name = std::move(name),
              .dtype = dtype,
              .dims = to_vector(dims),
              .strides = to_vector(strides)});
}

Uid GraphBuilder::add_tensor(const std::string& name, DType dtype, const Dims4& dims,
                             const Dims4& strides, const TensorTraits& traits) {
  const Uid uid = add({.name = name,
                       .dtype = dtype,
                       .dims = to_vector(dims),
                       .strides = to_vector(strides),
                       .storage = graph::Storage::device,
                       .alignment = traits.alignment,
                       .ragged = traits.ragged,
                       .reordering = traits.reordering});
  step_.operands.push_back({uid, plan::TensorOperand{name}});
  return uid;
}

Value GraphBuilder::iota(std::size_t axis) {
  Dims4 dims{1, 1, 1, 1};
  dims[axis] = scores_[axis];
  const Uid uid = add({.name = "index",
                       .dtype = DType::i32,
                       .dims = to_vector(dims),
                       .strides = to_vector(packed_strides(dims)),
                       .storage = graph::Storage::device});
  step_.operands.push_back({uid, plan::IotaOperand{scores_[axis]}});
  return {uid, DType::i32, Place::tensor};
}

Uid GraphBuilder::add_scalar(std::string name, DType dtype, plan::OperandSource source) {
  for (const plan::Operand& operand : step_.operands) {
    if (same_scalar(operand.source, source)) return operand.uid;
  }
  const Uid uid = add({.name = std::move(name),
                       .dtype = dtype,
                       .dims = {1, 1, 1, 1},
                       .strides = {1, 1, 1, 1},
                       .storage = graph::Storage::host_scalar});
  step_.operands.push_back({uid, std::move(source)});
  return uid;
}

Value GraphBuilder::constant(DType dtype, double value) {
  return {add_scalar("", dtype, plan::ConstantOperand{dtype, value}), dtype, Place::scalar};
}

Value GraphBuilder::param(const std::string& name, DType dtype) {
  return {add_scalar(name, dtype, plan::ParamOperand{name}), dtype, Place::scalar};
}

void GraphBuilder::matmul(Uid a, Uid b, Uid c, SourcePos pos, const Overrides& overrides) {
  step_.graph.nodes.emplace_back(
      graph::Matmul{a, b, c, DType::f32, pos, overrides.m, overrides.n, overrides.k});
}

void GraphBuilder::block_dequantize(Uid x, Uid scale, Uid y, SourcePos pos) {
  step_.graph.nodes.emplace_back(graph::BlockDequantize{x, scale, y, ir::kBlock, pos});
}

void GraphBuilder::paged_load(Uid container, Uid table, Uid lengths, Uid y, SourcePos pos) {
  step_.graph.nodes.emplace_back(graph::PagedLoad{container, table, lengths, y, pos});
}

Value GraphBuilder::rng(double keep, Uid seed, Uid offset, SourcePos pos) {
  const Uid y = add_scores(DType::f32, "kept");
  step_.graph.nodes.emplace_back(graph::Rng{keep, seed, offset, y, pos});
  return {y, DType::f32, Place::element};
}

Uid GraphBuilder::transposed(Uid x, DType dtype, SourcePos pos) {
  graph::Tensor turned = *step_.graph.find(x);
  std::swap(turned.dims[2], turned.dims[3]);
  std::swap(turned.strides[2], turned.strides[3]);
  turned.dtype = dtype;
  turned.storage = graph::Storage::virtual_value;
  turned.alignment = 16;
  turned.ragged.reset();
  const Uid y = add(std::move(turned));
  step_.graph.nodes.emplace_back(graph::Reshape{x, y, pos});
  return y;
}

void GraphBuilder::reduce(graph::ReduceOp op, Uid x, Uid y, SourcePos pos) {
  step_.graph.nodes.emplace_back(graph::Reduction{op, DType::f32, x, y, pos});
}

void GraphBuilder::pointwise(PointwiseMode mode, DType compute, Uid x, std::optional<Uid> b, Uid y,
                             SourcePos pos, std::optional<Uid> t) {
  step_.graph.nodes.emplace_back(graph::Pointwise{mode, compute, x, b, t, y, {}, pos});
}

Value GraphBuilder::element(PointwiseMode mode, DType compute, DType result, Value x,
                            std::optional<Value> b, SourcePos pos) {
  ATTN_CHECK(is_proven({mode, compute, result}), "only forms proven on a device are emitted");
  const Uid y = add_scores(result);
  pointwise(mode, compute, x.uid, b ? std::optional(b->uid) : std::nullopt, y, pos);
  return {y, result, Place::element};
}

Value GraphBuilder::index(std::int64_t axis, Uid like, SourcePos pos, DType compute) {
  const Uid y = add_scores(DType::i32);
  step_.graph.nodes.emplace_back(
      graph::Pointwise{PointwiseMode::gen_index, compute, like, {}, {}, y, axis, pos});
  return {y, DType::i32, Place::element};
}

Value GraphBuilder::real_index(std::int64_t axis, Uid like, SourcePos pos) {
  const Uid y = add_scores(DType::f32);
  step_.graph.nodes.emplace_back(
      graph::Pointwise{PointwiseMode::gen_index, DType::f32, like, {}, {}, y, axis, pos});
  return {y, DType::f32, Place::element};
}

Value GraphBuilder::band_mask(graph::BandMask mask) {
  mask.y = add_scores(DType::f32);
  step_.graph.nodes.emplace_back(mask);
  return {mask.y, DType::f32, Place::element};
}

void GraphBuilder::sdpa_forward(const graph::SdpaForward& node) {
  step_.graph.nodes.emplace_back(node);
}

Value GraphBuilder::select(Value condition, Value x, Value y, SourcePos pos) {
  const Uid result = add_scores(x.dtype);
  pointwise(PointwiseMode::binary_select, DType::f32, x.uid, y.uid, result, pos, condition.uid);
  return {result, x.dtype, Place::element};
}

plan::CudnnStep GraphBuilder::finish() && { return std::move(step_); }

namespace {

constexpr Form kForms[] = {
#define ATTN_FORM(mode, compute, result) \
  {graph::PointwiseMode::mode, DType::compute, DType::result},
#include "compiler/engines/shared/forms.def"
#undef ATTN_FORM
};

}  // namespace

std::span<const Form> proven_forms() { return kForms; }

bool is_proven(const Form& form) {
  return std::find(std::begin(kForms), std::end(kForms), form) != std::end(kForms);
}

}  // namespace attn::engines
