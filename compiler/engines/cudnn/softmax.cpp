#include "compiler/engines/cudnn/softmax.h"

#include <string>

#include "compiler/engines/cudnn/statistics.h"
#include "compiler/engines/shared/operands.h"

namespace attn::engines {
namespace {

using graph::ReduceOp;

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
