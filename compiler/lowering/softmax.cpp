#include "compiler/lowering/softmax.h"

#include "compiler/lowering/operands.h"

namespace attn::lowering {
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
  // A value for each row: an output, or a virtual one.
  Uid rows(const char* name, bool wanted) {
    return wanted ? add_statistics(attention_, builder_, name) : builder_.add_rows(name);
  }

  Uid largest(Value score, std::optional<Uid> sink) {
    const Uid max = rows("max", attention_.wants_max && !sink);
    builder_.reduce(ReduceOp::max, score.uid, max, pos_);
    if (!sink) return max;
    const Uid with_sink = rows("max", attention_.wants_max);
    builder_.pointwise(PointwiseMode::max, DType::f32, max, *sink, with_sink, pos_);
    return with_sink;
  }

  Uid sum_of(Uid exponential, Uid max, std::optional<Uid> sink) {
    if (!sink) {
      const Uid sum = rows("sum_exp", attention_.wants_sum_exp);
      builder_.reduce(ReduceOp::add, exponential, sum, pos_);
      return sum;
    }
    const Uid centred = builder_.add_rows();
    builder_.pointwise(PointwiseMode::sub, DType::f32, *sink, max, centred, pos_);
    const Uid share = builder_.add_rows();
    builder_.pointwise(PointwiseMode::exp, DType::f32, centred, {}, share, pos_);
    const Uid of_scores = builder_.add_rows();
    builder_.reduce(ReduceOp::add, exponential, of_scores, pos_);
    const Uid sum = rows("sum_exp", attention_.wants_sum_exp);
    builder_.pointwise(PointwiseMode::add, DType::f32, of_scores, share, sum, pos_);
    return sum;
  }

  void lse(Uid max, Uid sum) {
    const Uid log_sum = builder_.add_rows();
    builder_.pointwise(PointwiseMode::log, DType::f32, sum, {}, log_sum, pos_);
    builder_.pointwise(PointwiseMode::add, DType::f32, max, log_sum,
                       rows("lse", attention_.wants_lse), pos_);
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

}  // namespace attn::lowering
