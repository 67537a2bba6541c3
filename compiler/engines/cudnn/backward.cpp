#include "compiler/engines/cudnn/backward.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/cudnn/bands.h"
#include "compiler/engines/cudnn/dropout.h"
#include "compiler/engines/cudnn/expression.h"
#include "compiler/engines/cudnn/lower.h"
#include "compiler/engines/cudnn/score.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/graph_builder.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/products.h"
#include "compiler/engines/shared/quantized.h"
#include "compiler/engines/shared/staging.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/masks/real_range.h"
#include "compiler/target/capabilities.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

using ir::Dim;

constexpr std::int64_t kTile = 128;  // rows and columns of the largest tile
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The gradient of the scores: of the products of rows, the softmax and the score's function.
class BackwardScores {
 public:
  BackwardScores(const BackwardParts& parts, const masks::MaskForm& form)
      : parts_(parts),
        attention_(parts.attention),
        builder_(attention_.dims[Dim::B], attention_.dims[Dim::Hq], attention_.dims[Dim::Sq],
                 attention_.dims[Dim::Skv], Pass::backward),
        pos_(attention_.pos),
        form_(form) {}

 protected:
  // Whether tensors have scales; those of blocks are applied to the operands, and results have
  // none.
  bool is_quantized() const { return attention_.quantize && !is_mxfp8(); }

  bool is_mxfp8() const { return attention_.is_mxfp8(); }

  Uid stored(const std::string& name) {
    if (is_mxfp8()) return add_dequantized(attention_, builder_, name);
    return add_stored(attention_, builder_, name);
  }

  Uid transposed(const std::string& name) {
    if (is_mxfp8()) return add_dequantized(attention_, builder_, name, true);
    return add_transposed(attention_, builder_, name);
  }

  Value binary(PointwiseMode mode, Value x, Uid b) {
    const Uid y = builder_.add_scores(DType::f32);
    builder_.pointwise(mode, DType::f32, x.uid, b, y, pos_);
    return {y, DType::f32, Place::element};
  }

  Status decide_dropout(Value like) {
    if (!attention_.dropout) return {};
    ATTN_ASSIGN(const Dropout made, Dropout::make(attention_, builder_, like));
    dropout_.emplace(made);
    return {};
  }

  bool drops_at_random() const { return attention_.dropout && !attention_.dropout->keep; }

  // delta. With random dropout it is scaled by 1 - probability, since the difference that it enters
  // is divided by that later. The engine matches only this form; with a keep mask it ignores the
  // factor.
  Uid row_products() {
    const Dims4 dims = staged_dims(attention_, "o");
    const Uid o = add_stored(attention_, builder_, "o");
    const Uid products = builder_.add_virtual(DType::f32, dims, packed_strides(dims));
    const Uid d_o = is_mxfp8() ? add_unrounded(attention_, builder_) : do_;
    builder_.pointwise(PointwiseMode::mul, DType::f32, d_o, o, products, pos_);
    const Uid sum = builder_.add_rows();
    builder_.reduce(graph::ReduceOp::add, products, sum, pos_);
    if (is_mxfp8()) return sum;
    if (is_quantized()) return descaled_delta(sum);
    const Dims4 rows{dims[0], dims[1], dims[2], 1};
    const Uid delta = builder_.add_tensor(kDelta, DType::f32, rows, packed_strides(rows));
    const double kept = drops_at_random() ? 1 - attention_.dropout->probability : 1;
    builder_.pointwise(PointwiseMode::mul, DType::f32, sum, builder_.constant(DType::f32, kept).uid,
                       delta, pos_);
    return delta;
  }

  Uid descaled_delta(Uid sum) {
    const char* of_o = is_fp8(attention_.dtype_of("o")) ? "descale_o" : nullptr;
    for (const char* scale : {"descale_do", of_o}) {
      if (scale == nullptr) continue;
      sum = times_row_scale(attention_, builder_, sum, scale);
    }
    return sum;
  }

  Value product(Uid rows, Uid columns, const char* name) {
    const Value scores{builder_.add_scores(DType::f32, name), DType::f32, Place::element};
    builder_.matmul(rows, columns, scores.uid, pos_, {.m = lengths_.q, .n = lengths_.kv});
    return scores;
  }

  Uid lse() {
    const Dims4& s = builder_.score_dims();
    const Dims4 rows{s[0], s[1], s[2], 1};
    return builder_.add_tensor(reads_own_lse(attention_, form_) ? kLse : "lse", DType::f32, rows,
                               packed_strides(rows));
  }

  Result<Value> softmax(ExpressionLowering& expressions) {
    ATTN_ASSIGN(Value score, expressions.lower_real_element(attention_.score));
    ATTN_ASSIGN(score, mask_residual(attention_, builder_, form_, expressions, score));
    score = mask_tile(score);
    score = mask_padding(builder_, lengths_, score, pos_);
    Value centred = binary(PointwiseMode::sub, score, lse());
    centred = mask_bands(attention_, builder_, form_, lengths_, centred);
    return builder_.element(PointwiseMode::exp, DType::f32, DType::f32, centred, {}, pos_);
  }

  bool ends_within_tile() const {
    const Dims4& scores = builder_.score_dims();
    return scores[2] % kTile != 0 || scores[3] % kTile != 0;
  }

  // cuDNN sets scores past the ends of the last tile to -inf before the score modification, but
  // leaves 64 columns past the end, and rows, at 0 (9.19, sm_90; to 9.26 by pytorch issue 196678
  // and cudnn-frontend issue 1072). Their weights are infinite where lse is below -88.7.
  Value mask_tile(Value score) {
    const bool is_changed = !attention_.dag[attention_.score].is(ir::Op::score_);
    if (!is_changed && has_lengths(attention_)) return score;  // the padding mask covers it
    return mask_end(mask_end(score, 3), 2);
  }

  Value mask_end(Value score, std::size_t axis) {
    const std::int64_t end = builder_.score_dims()[axis];
    if (end % kTile == 0) return score;
    const Value index = builder_.index(static_cast<std::int64_t>(axis), score.uid, pos_);
    const Value inside =
        builder_.element(PointwiseMode::cmp_lt, DType::boolean, DType::boolean, index,
                         builder_.constant(DType::i32, static_cast<double>(end)), pos_);
    return builder_.select(inside, score, builder_.constant(DType::f32, -kInfinity), pos_);
  }

  // Where the weight is 0 the derivative may be infinite or NaN, and must not count. (Comparing the
  // weights themselves corrupts dv.)
  Result<Value> times_derivative(Value slope, ExpressionLowering& expressions) {
    const ir::Node& node = attention_.dag[parts_.derivative];
    if (node.is(ir::Op::const_real_) && attention_.dag.real_of(parts_.derivative) == 1) {
      return slope;
    }
    ATTN_ASSIGN(const Value derivative, expressions.lower_factor(parts_.derivative));
    const Value whole =
        builder_.element(PointwiseMode::mul, DType::f32, DType::f32, slope, derivative, node.pos);
    const auto score = ends_within_tile() ? masks::Score::infinite : masks::Score::finite;
    if (masks::is_finite(attention_, parts_.derivative, score)) return whole;
    const Value zero = builder_.constant(DType::f32, 0);
    const Value weighs =
        builder_.element(PointwiseMode::cmp_ne, DType::f32, DType::boolean, slope, zero, node.pos);
    return builder_.select(weighs, whole, zero, node.pos);
  }

  const BackwardParts& parts_;
  const ir::Attention& attention_;
  GraphBuilder builder_;
  SourcePos pos_;
  const masks::MaskForm& form_;
  Lengths lengths_;
  std::optional<Dropout> dropout_;
  Uid q_ = 0, do_ = 0;
};

class Backward : private BackwardScores {
 public:
  using BackwardScores::BackwardScores;

  Result<plan::CudnnStep> build() && {
    lengths_ = add_lengths(attention_, builder_);
    q_ = stored("q");
    do_ = stored("do");
    const Uid delta = row_products();
    const Uid k = transposed("k");
    ATTN_ASSIGN(Value scaled, times_scale(attention_, builder_, product(q_, k, "q.k")));
    if (is_quantized()) {
      scaled = times_scales(attention_, builder_, scaled, {"descale_q", "descale_k"});
    }
    ATTN_RETURN_IF_ERROR(decide_dropout(scaled));
    ExpressionLowering expressions(attention_, builder_, scaled);
    ATTN_ASSIGN(const Value weights, softmax(expressions));
    value_gradient(weights);
    ATTN_ASSIGN(const Value slope, score_gradient(weights, delta, expressions));
    key_gradient(slope);
    query_gradient(slope, k);
    return std::move(builder_).finish();
  }

 private:
  Result<Value> score_gradient(Value weights, Uid delta, ExpressionLowering& expressions) {
    const Uid v = transposed(is_mxfp8() ? "v_t" : "v");
    Value slope = product(do_, v, "do.v");
    if (is_quantized()) {
      slope = times_scales(attention_, builder_, slope, {"descale_do", "descale_v"});
    }
    if (dropout_) slope = dropout_->kept(slope);
    if (dropout_ && !drops_at_random()) slope = dropout_->rescaled(slope, DType::f32);
    slope = binary(PointwiseMode::mul, binary(PointwiseMode::sub, slope, delta), weights.uid);
    if (drops_at_random()) slope = dropout_->rescaled(slope, DType::f32);
    ATTN_ASSIGN(slope, times_derivative(slope, expressions));
    ATTN_ASSIGN(slope, times_scale(attention_, builder_, slope));
    if (!is_quantized()) return slope;
    store_amax(attention_, builder_, slope.uid, "amax_dp");
    return narrowed(attention_, builder_, slope, "scale_dp", attention_.dtype_of("do"));
  }

  // dv = (dropped weights)^T do
  void value_gradient(Value weights) {
    if (dropout_) weights = dropout_->rescaled(dropout_->kept(weights), DType::f32);
    if (is_quantized()) {
      weights = narrowed(attention_, builder_, weights, "scale_s", attention_.dtype);
    }
    const DType dtype = is_mxfp8() ? DType::f32 : attention_.dtype;
    const Uid turned = builder_.transposed(weights.uid, dtype, pos_);
    reduced_product(turned, is_mxfp8() ? stored("do_t") : do_, "dv");
  }

  // The gradient's tensor, or its internal copy if it is not wanted.
  Uid gradient(const std::string& name) {
    if (parts_.wanted.contains(name)) return add_stored(attention_, builder_, name);
    const Dims4 dims = staged_dims(attention_, name);
    return builder_.add_tensor(staged_name(name), attention_.dtype_of(name), dims,
                               packed_strides(dims));
  }

  // columns x rows. Where heads share keys, computed per head and then summed.
  void reduced_product(Uid turned, Uid rows, const std::string& name) {
    const Uid sum = gradient(name);
    if (is_quantized()) return quantized_product(turned, rows, name, sum);
    summed_product(turned, rows, name, sum);
    if (is_mxfp8()) store_amax(attention_, builder_, sum, "amax_" + name);
  }

  void summed_product(Uid turned, Uid rows, const std::string& name, Uid sum) {
    const Overrides sizes{.m = lengths_.kv, .k = lengths_.q};
    if (attention_.dims[Dim::Hq] == attention_.dims[Dim::Hkv]) {
      builder_.matmul(turned, rows, sum, pos_, sizes);
      return;
    }
    Dims4 dims = staged_dims(attention_, name);
    dims[1] = attention_.dims[Dim::Hq];
    const DType dtype = is_mxfp8() ? DType::f32 : attention_.dtype;
    const Uid each = builder_.add_virtual(dtype, dims, packed_strides(dims));
    builder_.matmul(turned, rows, each, pos_, sizes);
    builder_.reduce(graph::ReduceOp::add, each, sum, pos_);
  }

  void quantized_product(Uid turned, Uid rows, const std::string& name, Uid to) {
    Dims4 dims = staged_dims(attention_, name);
    const Uid sum = builder_.add_virtual(DType::f32, dims, packed_strides(dims));
    const Overrides sizes{.m = lengths_.kv, .k = lengths_.q};
    if (attention_.dims[Dim::Hq] == attention_.dims[Dim::Hkv]) {
      builder_.matmul(turned, rows, sum, pos_, sizes);
    } else {
      dims[1] = attention_.dims[Dim::Hq];
      const Uid each = builder_.add_virtual(DType::f32, dims, packed_strides(dims));
      builder_.matmul(turned, rows, each, pos_, sizes);
      builder_.reduce(graph::ReduceOp::add, each, sum, pos_);
    }
    if (name == "dv") {
      store_quantized_gradient(attention_, builder_, sum, {"descale_s", "descale_do"}, name, to);
    } else {
      store_quantized_gradient(attention_, builder_, sum, {"descale_dp", "descale_q"}, name, to);
    }
  }

  void key_gradient(Value slope) {
    const DType dtype = is_mxfp8()       ? DType::f32
                        : is_quantized() ? attention_.dtype_of("do")
                                         : attention_.dtype;
    const Uid turned = builder_.transposed(slope.uid, dtype, pos_);
    reduced_product(turned, is_mxfp8() ? stored("q_t") : q_, "dk");
  }

  void query_gradient(Value slope, Uid k) {
    if (is_mxfp8()) return query_gradient_by_copy(slope);
    const Uid keys = builder_.transposed(k, DType::f32, pos_);
    const Overrides sizes{.m = lengths_.q, .k = lengths_.kv};
    const Uid result = gradient("dq");
    if (is_quantized()) {
      const Dims4 shape = staged_dims(attention_, "dq");
      const Uid whole = builder_.add_virtual(DType::f32, shape, packed_strides(shape));
      builder_.matmul(slope.uid, keys, whole, pos_, sizes);
      store_quantized_gradient(attention_, builder_, whole, {"descale_dp", "descale_k"}, "dq",
                               result);
      return;
    }
    if (attention_.deterministic) {
      builder_.matmul(slope.uid, keys, result, pos_, sizes);
      return;
    }
    const Dims4 dims = staged_dims(attention_, "dq");
    const Uid sum = builder_.add_tensor(kQuerySum, DType::f32, dims, packed_strides(dims));
    builder_.matmul(slope.uid, keys, sum, pos_, sizes);
    builder_.pointwise(PointwiseMode::identity, DType::f32, sum, {}, result, pos_);
  }

  void query_gradient_by_copy(Value slope) {
    const Uid keys = stored("k_t"), result = gradient("dq");
    builder_.matmul(slope.uid, keys, result, pos_, {.m = lengths_.q, .k = lengths_.kv});
    store_amax(attention_, builder_, result, "amax_dq");
  }
};

}  // namespace

Result<plan::CudnnStep> backward(const BackwardParts& parts, const masks::MaskForm& form) {
  return Backward(parts, form).build();
}

bool reads_own_lse(const ir::Attention& attention, const masks::MaskForm& form) {
  return has_lengths(attention) || !form.residual.empty() ||
         !masks::is_finite(attention, attention.score);
}

namespace {

Status check_layouts(const ir::Attention& attention, const target::Context& context) {
  if (can(target::Capability::backward_of_pages, context)) return {};
  for (const char* name : {"k", "v"}) {
    if (layout_of(attention, name).kind != ir::LayoutKind::paged) continue;
    return unsupported(
        attention.pos,
        fmt::format("cuDNN's backward does not support pages, and `{}` is paged", name));
  }
  return {};
}

class BackwardMaker {
 public:
  BackwardMaker(const BackwardParts& parts, const masks::MaskForm& form)
      : parts_(parts), attention_(parts.attention), form_(form), dims_(attention_.dims) {}

  Result<plan::Program> make(const std::vector<std::string>& gradients,
                             LearnedGradients learned) && {
    ATTN_ASSIGN(plan::CudnnStep core, backward(parts_, form_));
    add_unwanted();
    const std::vector<std::string> outputs(parts_.wanted.begin(), parts_.wanted.end());
    ATTN_ASSIGN(Staging staged, staging(attention_, {"q", "k", "v", "o", "do"}, outputs));
    add_internals();
    std::vector<plan::Step> steps;
    move_to(steps, staged.before);
    if (reads_own_lse(attention_, form_)) steps.emplace_back(read_lse());
    steps.emplace_back(std::move(core));
    move_to(steps, staged.after);
    if (auto zeros = keyless_backward(attention_, outputs)) steps.emplace_back(std::move(*zeros));
    move_to(steps, learned.steps);
    bind(plan::names_used(steps), gradients);
    move_to(program_.internals, staged.internals);
    move_to(program_.internals, learned.internals);
    move_to(program_.steps, steps);
    return std::move(program_);
  }

 private:
  template <typename To, typename From>
  static void move_to(std::vector<To>& to, std::vector<From>& from) {
    for (From& each : from) to.emplace_back(std::move(each));
  }

  void bind(const std::set<std::string>& used, const std::vector<std::string>& gradients) {
    Controls made = controls(attention_, used);
    program_.tensors = backward_tensors(attention_, used, made, gradients);
    move_to(program_.internals, made.internals);
    move_to(program_.steps, made.steps);
    program_.params = bound_params(attention_, used);
  }

  // The engine writes all three.
  void add_unwanted() {
    for (const char* name : {"dq", "dk", "dv"}) {
      if (parts_.wanted.contains(name)) continue;
      program_.internals.push_back(staged_info(attention_, name));
    }
  }

  void add_internal(const char* name, std::vector<std::int64_t> dims) {
    program_.internals.push_back(plan::internal_tensor(name, DType::f32, std::move(dims)));
  }

  void add_internals() {
    const std::vector<std::int64_t> rows = {dims_[Dim::B], dims_[Dim::Hq], dims_[Dim::Sq]};
    if (!attention_.quantize) add_internal(kDelta, rows);
    if (reads_own_lse(attention_, form_)) add_internal(kLse, rows);
    if (attention_.deterministic || attention_.quantize) return;
    const Dims4 sum = staged_dims(attention_, "dq");
    add_internal(kQuerySum, {sum.begin(), sum.end()});
  }

  // [B,Hq,Sq], inf where the row is past the lengths or has no weights.
  plan::DeriveStep read_lse() const {
    codegen::KernelText kernel;
    const std::int64_t heads = dims_[Dim::Hq], rows = dims_[Dim::Sq];
    const Dims4 strides = statistics_strides(attention_);
    const std::string lse = kernel.read("lse", DType::f32);
    std::string begin = fmt::format("b * {}LL", strides[0]), present = "true";
    if (const std::string starts = addressed_by(attention_, "lse"); !starts.empty()) {
      const std::string cu = kernel.read(starts, DType::i32);
      begin = fmt::format("{}[b] * {}LL", cu, strides[2]);
      present = fmt::format("s < {0}[b + 1] - {0}[b]", cu);
    } else if (has_row_lengths(attention_)) {
      present = fmt::format("s < {}[b]", kernel.read(std::string(ir::kLengthsQ), DType::i32));
    }
    kernel.make(kLse, DType::f32, dims_[Dim::B] * heads * rows, "lse, or inf",
                fmt::format("const long long s = i % {0}, h = i / {0} % {1}, b = i / {0} / {1};\n"
                            "    const float inf = 1.0 / 0.0;\n"
                            "    const float x = {2} ? {3}[{4} + h * {5}LL + s * {6}LL] : inf;\n"
                            "    out[i] = x == -inf ? inf : x;",
                            rows, heads, present, lse, begin, strides[1], strides[2]));
    return std::move(kernel).finish(false);
  }

  const BackwardParts& parts_;
  const ir::Attention& attention_;
  const masks::MaskForm& form_;
  const ir::Dims& dims_;
  plan::Program program_;
};

}  // namespace

Result<plan::Program> lower_backward(const BackwardParts& parts,
                                     const std::vector<std::string>& gradients,
                                     LearnedGradients learned, const target::Context& context) {
  ATTN_RETURN_IF_ERROR(check_layouts(parts.attention, context));
  const masks::Analyzed mask = masks::analyzed(parts.attention, context);
  ATTN_RETURN_IF_ERROR(check_quantized_backward(parts.attention, mask->form(), context));
  ATTN_ASSIGN(plan::Program program,
              BackwardMaker(parts, mask->form()).make(gradients, std::move(learned)));
  ATTN_RETURN_IF_ERROR(check_program(parts.attention, program));
  return program;
}

}  // namespace attn::engines
