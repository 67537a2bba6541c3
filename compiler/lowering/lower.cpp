#include "compiler/lowering/lower.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <set>

#include "compiler/lowering/expression.h"
#include "compiler/lowering/graph_builder.h"
#include "compiler/lowering/unsupported.h"
#include "compiler/passes/band.h"
#include "runtime/base/check.h"
#include "runtime/graph/extent.h"

namespace attn::lowering {
namespace {

using graph::ReduceOp;
using ir::Dim;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

Status check_bound(const ir::Attention& attention) {
  for (const Dim dim : ir::kDims) {
    if (attention.dims.get(dim)) continue;
    return Error{ErrorCode::invalid_argument,
                 fmt::format("dimension {} of `{}` is open", to_string(dim), attention.name),
                 {fmt::format("give it a size: --bind {}=1024", to_string(dim))},
                 {}};
  }
  return {};
}

// What the attention asks for and no graph here has.
Status check_served(const ir::Attention& attention) {
  const auto refuse = [&](std::string_view what) {
    return unsupported(attention.pos, fmt::format("{} cannot be lowered to cuDNN yet", what));
  };
  if (attention.lengths_q || attention.lengths_kv) return refuse("lengths");
  if (attention.sink) return refuse("a sink");
  if (attention.dropout) return refuse("dropout");
  if (attention.wants_max || attention.wants_sum_exp) return refuse("the output max or sum_exp");
  for (const auto& [name, layout] : attention.layouts) {
    if (layout.kind == ir::LayoutKind::paged) return refuse("a paged layout");
  }
  return {};
}

// So that no stride or offset can leave 64 bits.
Status check_sizes(const ir::Attention& attention) {
  constexpr double kMost = 0x1p58;  // elements
  const ir::Dims& d = attention.dims;
  const auto product = [&d](std::initializer_list<Dim> dims) {
    double elements = 1;
    for (const Dim dim : dims) elements *= static_cast<double>(d[dim]);
    return elements;
  };
  const double largest = std::max({product({Dim::B, Dim::Hq, Dim::Sq, Dim::Skv}),
                                   product({Dim::B, Dim::Hq, Dim::Sq, Dim::Dqk}),
                                   product({Dim::B, Dim::Hq, Dim::Sq, Dim::Dv}),
                                   product({Dim::B, Dim::Hkv, Dim::Skv, Dim::Dqk}),
                                   product({Dim::B, Dim::Hkv, Dim::Skv, Dim::Dv})});
  if (largest <= kMost) return {};
  return unsupported(attention.pos,
                     fmt::format("the sizes of `{}` need tensors or scores of {:.1e} elements",
                                 attention.name, largest),
                     "at most 2^58 can be addressed");
}

Status check_extents(const ir::Attention& attention, const plan::Program& program) {
  for (const plan::TensorInfo& tensor : program.tensors) {
    if (last_offset(tensor.dims, tensor.strides)) continue;
    return unsupported(attention.pos,
                       fmt::format("tensor `{}` is too large to be addressed", tensor.name));
  }
  return {};
}

// The graph of one forward pass under construction.
class Forward {
 public:
  explicit Forward(const ir::Attention& attention)
      : attention_(attention),
        dims_(attention.dims),
        builder_(dims_[Dim::B], dims_[Dim::Hq], dims_[Dim::Sq], dims_[Dim::Skv]) {}

  Result<plan::CudnnStep> build() && {
    const Value score = query_times_key();
    ATTN_ASSIGN(const Value scaled, scale(score));
    ATTN_ASSIGN(const Value modified, modify(scaled));
    softmax_and_value(mask_band(modified));
    return std::move(builder_).finish();
  }

 private:
  Uid io_tensor(const std::string& name, const Dims4& dims, bool transposed = false) {
    Dims4 view = dims;
    Dims4 strides = ir::strides_of(attention_.layouts.find(name)->second, dims,
                                   {dims_[Dim::Hq], dims_[Dim::Hkv]});
    if (transposed) {
      std::swap(view[2], view[3]);
      std::swap(strides[2], strides[3]);
    }
    return builder_.add_tensor(name, attention_.dtype, view, strides);
  }

  Value query_times_key() {
    const Uid q = io_tensor("q", {dims_[Dim::B], dims_[Dim::Hq], dims_[Dim::Sq], dims_[Dim::Dqk]});
    const Uid k =
        io_tensor("k", {dims_[Dim::B], dims_[Dim::Hkv], dims_[Dim::Skv], dims_[Dim::Dqk]}, true);
    const Value score{builder_.add_scores(DType::f32, "q.k"), DType::f32, Place::element};
    builder_.matmul(q, k, score.uid, attention_.pos);
    return score;
  }

  Result<Value> scale(Value score) {
    ExpressionLowering expressions(attention_, builder_, score);
    ATTN_ASSIGN(const Value factor, expressions.lower(attention_.scale));
    return builder_.element(PointwiseMode::mul, DType::f32, DType::f32, score, factor,
                            attention_.dag[attention_.scale].pos);
  }

  // Score modification and residual masks.
  Result<Value> modify(Value scaled) {
    form_ = passes::mask_form(attention_);
    ExpressionLowering expressions(attention_, builder_, scaled);
    ATTN_ASSIGN(Value score, expressions.lower_real_element(attention_.score));
    std::optional<Value> visible;
    SourcePos pos;
    for (const ir::ExprId mask : form_.residual) {
      ATTN_ASSIGN(const Value conjunct, expressions.lower(mask));
      pos = attention_.dag[mask].pos;
      visible = visible ? builder_.element(PointwiseMode::logical_and, DType::f32, DType::boolean,
                                           *visible, conjunct, pos)
                        : conjunct;
    }
    return visible ? builder_.select(*visible, score, minus_infinity(), pos) : score;
  }

  Value minus_infinity() { return builder_.constant(DType::f32, kMinusInfinity); }

  Value shifted(Value index, PointwiseMode mode, std::int64_t amount, SourcePos pos) {
    return builder_.element(mode, DType::i32, DType::i32, index,
                            builder_.constant(DType::i32, static_cast<double>(amount)), pos);
  }

  // The exact shapes that cuDNN recognises as bands, right bound first.
  Value mask_band(Value score) {
    const passes::Band& band = form_.band;
    if (band.right) score = mask_right(score, *band.right, band.right_pos);
    if (band.left) score = mask_left(score, *band.left, band.left_pos);
    return score;
  }

  // row + right >= column; bottom-right alignment spells its part as + Skv - Sq.
  Value mask_right(Value score, std::int64_t right, SourcePos pos) {
    Value row = builder_.index(2, score.uid, pos);
    const Value column = builder_.index(3, score.uid, pos);
    if (attention_.align == ir::Align::bottom_right) {
      row = shifted(row, PointwiseMode::add, dims_[Dim::Skv], pos);
      row = shifted(row, PointwiseMode::sub, dims_[Dim::Sq], pos);
      right -= dims_[Dim::Skv] - dims_[Dim::Sq];
    }
    if (right != 0) row = shifted(row, PointwiseMode::add, right, pos);
    const Value visible =
        builder_.element(PointwiseMode::cmp_ge, DType::boolean, DType::boolean, row, column, pos);
    return builder_.select(visible, score, minus_infinity(), pos);
  }

  // column + (left + 1) > row, the addition in FLOAT.
  Value mask_left(Value score, std::int64_t left, SourcePos pos) {
    const Value row = builder_.index(2, score.uid, pos);
    const Value column = builder_.index(3, score.uid, pos);
    const Value limit =
        builder_.element(PointwiseMode::add, DType::f32, DType::f32, column,
                         builder_.constant(DType::f32, static_cast<double>(left + 1)), pos);
    const Value visible =
        builder_.element(PointwiseMode::cmp_gt, DType::boolean, DType::boolean, limit, row, pos);
    return builder_.select(visible, score, minus_infinity(), pos);
  }

  Uid stats() {
    if (!attention_.wants_lse) return builder_.add_rows("lse");
    const Dims4 dims{dims_[Dim::B], dims_[Dim::Hq], dims_[Dim::Sq], 1};
    return builder_.add_tensor("lse", DType::f32, dims, packed_strides(dims));
  }

  void softmax_and_value(Value score) {
    const SourcePos pos = attention_.pos;
    const Uid max = builder_.add_rows("max");
    builder_.reduce(ReduceOp::max, score.uid, max, pos);
    const Uid centred = builder_.add_scores(DType::f32);
    builder_.pointwise(PointwiseMode::sub, DType::f32, score.uid, max, centred, pos);
    const Uid exponential = builder_.add_scores(DType::f32);
    builder_.pointwise(PointwiseMode::exp, DType::f32, centred, {}, exponential, pos);
    const Uid sum = builder_.add_rows("sum_exp");
    builder_.reduce(ReduceOp::add, exponential, sum, pos);
    const Uid log_sum = builder_.add_rows();
    builder_.pointwise(PointwiseMode::log, DType::f32, sum, {}, log_sum, pos);
    builder_.pointwise(PointwiseMode::add, DType::f32, max, log_sum, stats(), pos);
    const Uid weights = builder_.add_scores(attention_.dtype, "p");
    builder_.pointwise(PointwiseMode::div, DType::f32, exponential, sum, weights, pos);
    const Uid v = io_tensor("v", {dims_[Dim::B], dims_[Dim::Hkv], dims_[Dim::Skv], dims_[Dim::Dv]});
    const Uid o = io_tensor("o", {dims_[Dim::B], dims_[Dim::Hq], dims_[Dim::Sq], dims_[Dim::Dv]});
    builder_.matmul(weights, v, o, pos);
  }

  const ir::Attention& attention_;
  const ir::Dims& dims_;
  GraphBuilder builder_;
  passes::MaskForm form_;
};

plan::TensorInfo io_info(const ir::Attention& attention, const std::string& name,
                         plan::TensorRole role, const Dims4& dims) {
  const Dims4 strides = ir::strides_of(attention.layouts.find(name)->second, dims,
                                       {attention.dims[Dim::Hq], attention.dims[Dim::Hkv]});
  return {name, role, attention.dtype, {dims.begin(), dims.end()}, {strides.begin(), strides.end()},
          16};
}

plan::TensorInfo packed_info(std::string name, plan::TensorRole role, DType dtype,
                             std::vector<std::int64_t> dims) {
  std::vector<std::int64_t> strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return {std::move(name), role, dtype, std::move(dims), std::move(strides), 16};
}

// The tensors that the caller binds: those that the step reads or writes.
std::vector<plan::TensorInfo> bound_tensors(const ir::Attention& attention,
                                            const std::set<std::string>& used) {
  using Role = plan::TensorRole;
  const ir::Dims& d = attention.dims;
  std::vector<plan::TensorInfo> tensors{
      io_info(attention, "q", Role::query, {d[Dim::B], d[Dim::Hq], d[Dim::Sq], d[Dim::Dqk]}),
      io_info(attention, "k", Role::key, {d[Dim::B], d[Dim::Hkv], d[Dim::Skv], d[Dim::Dqk]}),
      io_info(attention, "v", Role::value, {d[Dim::B], d[Dim::Hkv], d[Dim::Skv], d[Dim::Dv]})};
  for (const ir::CapturedTensor& captured : attention.tensors) {
    if (!used.contains(captured.name)) continue;
    std::vector<std::int64_t> extents;
    for (const ir::ExprId id : captured.extents) {
      extents.push_back(*ir::fold_integer(attention.dag, id));
    }
    tensors.push_back(
        packed_info(captured.name, Role::captured, captured.dtype, std::move(extents)));
  }
  tensors.push_back(
      io_info(attention, "o", Role::output, {d[Dim::B], d[Dim::Hq], d[Dim::Sq], d[Dim::Dv]}));
  if (attention.wants_lse) {
    tensors.push_back(
        packed_info("lse", Role::stats, DType::f32, {d[Dim::B], d[Dim::Hq], d[Dim::Sq]}));
  }
  return tensors;
}

std::set<std::string> names_of(const plan::CudnnStep& step) {
  std::set<std::string> names;
  for (const plan::Operand& operand : step.operands) {
    if (const auto* tensor = std::get_if<plan::TensorOperand>(&operand.source)) {
      names.insert(tensor->name);
    } else if (const auto* param = std::get_if<plan::ParamOperand>(&operand.source)) {
      names.insert(param->name);
    }
  }
  return names;
}

}  // namespace

Result<plan::Program> lower(const ir::Attention& attention) {
  ATTN_RETURN_IF_ERROR(check_bound(attention));
  ATTN_RETURN_IF_ERROR(check_sizes(attention));
  ATTN_RETURN_IF_ERROR(check_served(attention));
  if (!attention.wants_o) {
    return unsupported(attention.pos, "cuDNN's kernels always write o",
                       "list o in `outputs` beside lse");
  }
  ATTN_ASSIGN(plan::CudnnStep step, Forward(attention).build());
  const std::set<std::string> used = names_of(step);
  plan::Program program;
  program.tensors = bound_tensors(attention, used);
  for (const ir::Param& param : attention.params) {
    if (used.contains(param.name)) program.params.push_back({param.name, param.dtype});
  }
  program.steps.emplace_back(std::move(step));
  ATTN_RETURN_IF_ERROR(check_extents(attention, program));
  if (const Status status = plan::validate(program); !status.ok()) {
    ATTN_CHECK(false, status.error().message);
  }
  return program;
}

}  // namespace attn::lowering
