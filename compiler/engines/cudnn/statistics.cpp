#include "compiler/engines/cudnn/statistics.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"

namespace attn::engines {
namespace {

using graph::ReduceOp;
using ir::Dim;

bool is_ragged(const ir::Attention& attention) { return !addressed_by(attention, "lse").empty(); }

// sum_exp is always recomputed: past the lengths the graph's is infinite, and it must be 0.
std::string max_name(const ir::Attention& attention) {
  return attention.wants_max && !ignores_row_lengths(attention) ? "max" : "max.computed";
}
std::string sum_name() { return "sum_exp.computed"; }
std::string lse_name(const ir::Attention& attention) {
  return ignores_row_lengths(attention) ? "lse.computed" : "lse";
}

Uid add(const ir::Attention& attention, GraphBuilder& builder, const std::string& name) {
  const ir::Dims& d = attention.dims;
  const Dims4 dims{d[Dim::B], d[Dim::Hq], d[Dim::Sq], 1};
  TensorTraits traits;
  const bool ragged = is_ragged(attention) && !ignores_row_lengths(attention);
  if (ragged) traits.ragged = add_offsets(attention, builder, name);
  return builder.add_tensor(name, DType::f32, dims,
                            ragged ? statistics_strides(attention) : packed_strides(dims), traits);
}

class StatisticsMaker {
 public:
  explicit StatisticsMaker(const ir::Attention& attention)
      : attention_(attention),
        rows_{attention.dims[Dim::B], attention.dims[Dim::Hq], attention.dims[Dim::Sq]} {}

  Statistics make() && {
    const bool pair = stores_reductions(attention_);
    const bool all = ignores_row_lengths(attention_);
    if (all) copy("lse", attention_.wants_lse && !pair, lse_name(attention_));
    if (!pair) return finish();
    if (all) copy("max", attention_.wants_max, max_name(attention_));
    const std::string max = read(max_name(attention_)), sum = read(sum_name());
    const std::string empty = fmt::format("isinf({0}[i]) && {0}[i] < 0", max);
    make("sum_exp", attention_.wants_sum_exp, "sum of exp(score - max)", "0",
         fmt::format("{} ? 0 : {}[i]", empty, sum));
    make("lse", attention_.wants_lse, "max + log(sum_exp)", "(-1.0 / 0.0)",
         fmt::format("{0} ? {1}[i] : {1}[i] + log(static_cast<double>({2}[i]))", empty, max, sum));
    return finish();
  }

 private:
  // The graph's tensor, in the layout of the rows: [B,Hq,Sq] or [T,Hq].
  std::string read(const std::string& name) {
    const bool bound = name == "max";
    if (!bound && made_internals_.insert(name).second) {
      made_.internals.push_back({name,
                                 plan::TensorRole::internal,
                                 DType::f32,
                                 rows_,
                                 {rows_[1] * rows_[2], rows_[2], 1},
                                 plan::kInternalAlignment});
    }
    return kernel_.read(name, DType::f32);
  }

  void copy(const char* output, bool wanted, const std::string& from) {
    if (wanted)
      make(output, true, "of the rows within lengths_q", "(-1.0 / 0.0)", read(from) + "[i]");
  }

  void make(const char* output, bool wanted, const char* meaning, std::string_view missing,
            const std::string& value) {
    if (!wanted) return;
    kernel_.make(output, DType::f32, rows_[0] * rows_[1] * rows_[2], meaning,
                 statement(missing, value));
  }

  std::string statement(std::string_view missing, const std::string& value) {
    if (!ignores_row_lengths(attention_)) {
      std::string text;
      if (is_ragged(attention_)) {
        text = fmt::format("if (i >= {}[{}] * {}LL) return;\n    ",
                           kernel_.read(kRowStarts, DType::i32), rows_[0], rows_[1]);
      }
      return text + fmt::format("out[i] = {};", value);
    }
    const std::string batch = fmt::format("i / {}", rows_[1]);
    if (!is_ragged(attention_)) {
      const std::string lengths = kernel_.read(std::string(ir::kLengthsQ), DType::i32);
      return fmt::format("out[i] = {}[{}] > 0 ? {} : {};", lengths, batch, value, missing);
    }
    return fmt::format(
        "const long long b = {0};\n"
        "    if ({1}[b + 1] > {1}[b]) out[{1}[b] * {2}LL + i % {2}] = {3};",
        batch, kernel_.read(kRowStarts, DType::i32), rows_[1], value);
  }

  Statistics finish() {
    if (!kernel_.empty()) made_.steps.push_back(std::move(kernel_).finish(false));
    return std::move(made_);
  }

  const ir::Attention& attention_;
  std::vector<std::int64_t> rows_;
  std::set<std::string> made_internals_;
  codegen::KernelText kernel_;
  Statistics made_;
};

}  // namespace

bool stores_reductions(const ir::Attention& attention) {
  return attention.wants_max || attention.wants_sum_exp;
}

Uid stored_max(const ir::Attention& attention, GraphBuilder& builder) {
  return add(attention, builder, max_name(attention));
}

Uid stored_sum(const ir::Attention& attention, GraphBuilder& builder) {
  return add(attention, builder, sum_name());
}

Uid stored_lse(const ir::Attention& attention, GraphBuilder& builder) {
  return add(attention, builder, lse_name(attention));
}

Statistics statistics(const ir::Attention& attention) { return StatisticsMaker(attention).make(); }

namespace {

class Softmax {
 public:
  Softmax(const ir::Attention& attention, GraphBuilder& builder)
      : attention_(attention), builder_(builder), pos_(attention.pos) {}

  Value build(Value score, std::optional<Uid> sink, DType dtype) {
    const Uid max = largest(score, sink);
    const Uid centred = builder_.add_scores(DType::f32);
    builder_.pointwise(PointwiseMode::sub, DType::f32, score.uid, max, centred, pos_);
    const Uid exponential = builder_.add_scores(DType::f32);
    builder_.pointwise(PointwiseMode::exp, DType::f32, centred, {}, exponential, pos_);
    const Uid sum = sum_of(exponential, max, sink);
    lse(max, sum);
    const Uid weights = builder_.add_scores(dtype, "p");
    builder_.pointwise(PointwiseMode::div, DType::f32, exponential, sum, weights, pos_);
    return {weights, dtype, Place::element};
  }

 private:
  Uid largest(Value score, std::optional<Uid> sink) {
    const bool stored = stores_reductions(attention_);
    const Uid max = stored ? stored_max(attention_, builder_) : builder_.add_rows("max");
    builder_.reduce(ReduceOp::max, score.uid, max, pos_);
    if (!sink) return max;
    const Uid with_sink = builder_.add_rows();
    builder_.pointwise(PointwiseMode::max, DType::f32, max, *sink, with_sink, pos_);
    return with_sink;
  }

  Uid sum_of(Uid exponential, Uid max, std::optional<Uid> sink) {
    const bool stored = stores_reductions(attention_);
    const Uid of_scores = stored ? stored_sum(attention_, builder_) : builder_.add_rows("sum_exp");
    if (!sink) {
      builder_.reduce(ReduceOp::add, exponential, of_scores, pos_);
      return of_scores;
    }
    const Uid centred = builder_.add_rows();
    builder_.pointwise(PointwiseMode::sub, DType::f32, *sink, max, centred, pos_);
    const Uid share = builder_.add_rows();
    builder_.pointwise(PointwiseMode::exp, DType::f32, centred, {}, share, pos_);
    builder_.reduce(ReduceOp::add, exponential, of_scores, pos_);
    const Uid sum = builder_.add_rows();
    builder_.pointwise(PointwiseMode::add, DType::f32, of_scores, share, sum, pos_);
    return sum;
  }

  // Emitted even if not stored, but never beside stored reductions, which would then not be
  // written.
  void lse(Uid max, Uid sum) {
    if (stores_reductions(attention_)) return;
    const Uid log_sum = builder_.add_rows();
    builder_.pointwise(PointwiseMode::log, DType::f32, sum, {}, log_sum, pos_);
    const bool stored = attention_.wants_lse;
    const Uid stats = stored ? stored_lse(attention_, builder_) : builder_.add_rows("lse");
    builder_.pointwise(PointwiseMode::add, DType::f32, max, log_sum, stats, pos_);
  }

  const ir::Attention& attention_;
  GraphBuilder& builder_;
  SourcePos pos_;
};

}  // namespace

Value softmax(const ir::Attention& attention, GraphBuilder& builder, Value score,
              std::optional<Uid> sink, DType dtype) {
  return Softmax(attention, builder).build(score, sink, dtype);
}

}  // namespace attn::engines
