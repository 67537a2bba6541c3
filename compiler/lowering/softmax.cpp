#include "compiler/lowering/softmax.h"

#include <string>

#include "compiler/lowering/operands.h"
#include "compiler/lowering/sum_of_exps.h"

namespace attn::lowering {
namespace {

using graph::ReduceOp;

class Softmax {
 public:
  Softmax(const ir::Attention& attention, GraphBuilder& builder)
      : attention_(attention),
        builder_(builder),
        late_sum_(has_late_sum(attention)),
        pos_(attention.pos) {}

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
  // A value for each row: stored, or a virtual one.
  Uid rows(const char* name, bool stored, const std::string& stored_as) {
    return stored ? add_statistics(attention_, builder_, stored_as) : builder_.add_rows(name);
  }

  // The largest score is stored without the sink.
  Uid largest(Value score, std::optional<Uid> sink) {
    const Uid max = rows("max", attention_.wants_max || late_sum_, max_name(attention_));
    builder_.reduce(ReduceOp::max, score.uid, max, pos_);
    if (!sink) return max;
    const Uid with_sink = builder_.add_rows();
    builder_.pointwise(PointwiseMode::max, DType::f32, max, *sink, with_sink, pos_);
    return with_sink;
  }

  Uid sum_of(Uid exponential, Uid max, std::optional<Uid> sink) {
    const Uid of_scores = rows("sum_exp", attention_.wants_sum_exp && !sink, "sum_exp");
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

  // Emitted whether it is stored or not: without it cuDNN refuses max or sum_exp alone.
  void lse(Uid max, Uid sum) {
    const Uid log_sum = builder_.add_rows();
    builder_.pointwise(PointwiseMode::log, DType::f32, sum, {}, log_sum, pos_);
    const Uid stats = rows("lse", attention_.wants_lse || late_sum_, lse_name(attention_));
    builder_.pointwise(PointwiseMode::add, DType::f32, max, log_sum, stats, pos_);
  }

  const ir::Attention& attention_;
  GraphBuilder& builder_;
  bool late_sum_;
  SourcePos pos_;
};

}  // namespace

Value softmax(const ir::Attention& attention, GraphBuilder& builder, Value score,
              std::optional<Uid> sink, DType dtype) {
  return Softmax(attention, builder).build(score, sink, dtype);
}

}  // namespace attn::lowering
