#include "compiler/engines/cudnn/bands.h"
#include "compiler/engines/cudnn/dropout.h"
#include "compiler/engines/cudnn/lower.h"
#include "compiler/engines/cudnn/score.h"
#include "compiler/engines/cudnn/statistics.h"
#include "compiler/engines/shared/graph_builder.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/quantized.h"

namespace attn::engines {
namespace {

using ir::Dim;

class Forward {
 public:
  Forward(const ir::Attention& attention, const masks::MaskForm& form)
      : attention_(attention),
        builder_(attention.dims[Dim::B], attention.dims[Dim::Hq], attention.dims[Dim::Sq],
                 attention.dims[Dim::Skv]),
        form_(form) {}

  Result<plan::CudnnStep> build() && {
    lengths_ = add_lengths(attention_, builder_);
    const Value product = query_times_key();
    ATTN_ASSIGN(Value scaled, times_scale(attention_, builder_, product));
    if (is_per_tensor()) {
      scaled = times_scales(attention_, builder_, scaled, {"descale_q", "descale_k"});
    }
    ATTN_ASSIGN(Value score, modify_score(attention_, builder_, form_, scaled));
    score = mask_padding(builder_, lengths_, score, attention_.pos);
    score = mask_bands(attention_, builder_, form_, lengths_, score);
    ATTN_ASSIGN(const std::optional<Uid> sink, sink_operand(attention_, builder_));
    const bool is_f32 = attention_.dropout || is_per_tensor();
    const DType weights_type = is_f32 ? DType::f32 : attention_.dtype;
    const Value weights = softmax(attention_, builder_, score, sink, weights_type);
    ATTN_ASSIGN(const Value kept, dropped(weights));
    times_value(kept);
    return std::move(builder_).finish();
  }

 private:
  bool is_per_tensor() const { return attention_.quantize && !attention_.is_mxfp8(); }

  Uid operand(const std::string& name) {
    if (attention_.is_mxfp8()) return add_dequantized(attention_, builder_, name, name == "k");
    return add_operand(attention_, builder_, name, lengths_);
  }

  Value query_times_key() {
    const Uid q = operand("q");
    const Uid k = operand("k");
    const Value score{builder_.add_scores(DType::f32, "q.k"), DType::f32, Place::element};
    builder_.matmul(q, k, score.uid, attention_.pos, {.m = lengths_.q, .n = lengths_.kv});
    return score;
  }

  Result<Value> dropped(Value weights) {
    if (!attention_.dropout) return weights;
    ATTN_ASSIGN(const Dropout dropout, Dropout::make(attention_, builder_, weights));
    return dropout.rescaled(dropout.kept(weights),
                            attention_.quantize ? DType::f32 : attention_.dtype);
  }

  void times_value(Value weights) {
    if (is_per_tensor()) {
      const Value narrow = quantized_weights(attention_, builder_, weights);
      return times_quantized_value(attention_, builder_, narrow, lengths_);
    }
    const Uid v = operand("v");
    const Uid o = add_operand(attention_, builder_, "o", lengths_);
    builder_.matmul(weights.uid, v, o, attention_.pos, {.m = lengths_.q, .k = lengths_.kv});
    if (attention_.is_mxfp8()) store_amax(attention_, builder_, o, "amax_o");
  }

  const ir::Attention& attention_;
  GraphBuilder builder_;
  const masks::MaskForm& form_;
  Lengths lengths_;
};

}  // namespace

Result<plan::CudnnStep> composite(const ir::Attention& attention, const masks::MaskForm& form) {
  return Forward(attention, form).build();
}

}  // namespace attn::engines
