#include "compiler/engines/cudnn/bands.h"

#include <limits>

namespace attn::engines {
namespace {

using ir::Dim;

class BandMasks {
 public:
  BandMasks(const ir::Attention& attention, GraphBuilder& builder, const Lengths& lengths)
      : attention_(attention), dims_(attention.dims), builder_(builder), lengths_(lengths) {}

  Value from_start(const masks::Band& band, Value score) {
    if (band.right) score = right(score, *band.right, band.right_pos);
    if (band.left) score = left(score, *band.left, band.left_pos);
    return score;
  }

  Value from_end(const masks::Band& band, Value score) {
    if (band.right) score = right_from_end(score, *band.right, band.right_pos);
    if (band.left) score = left_from_end(score, *band.left, band.left_pos);
    return score;
  }

 private:
  Value shifted(Value index, PointwiseMode mode, std::int64_t amount, SourcePos pos) {
    return builder_.element(mode, DType::i32, DType::i32, index,
                            builder_.constant(DType::i32, static_cast<double>(amount)), pos);
  }

  Value moved(Value index, PointwiseMode mode, Uid lengths, SourcePos pos) {
    return builder_.element(mode, DType::i32, DType::i32, index,
                            Value{lengths, DType::i32, Place::tensor}, pos);
  }

  Value select(PointwiseMode mode, Value x, Value y, Value score, SourcePos pos) {
    const Value visible = builder_.element(mode, DType::boolean, DType::boolean, x, y, pos);
    const Value hidden = builder_.constant(DType::f32, -std::numeric_limits<double>::infinity());
    return builder_.select(visible, score, hidden, pos);
  }

  // row + right >= column; bottom-right alignment is written as + Skv - Sq. Where both are equal it
  // is not written: backward kernels skip nothing then.
  Value right(Value score, std::int64_t bound, SourcePos pos) {
    Value row = builder_.index(2, score.uid, pos);
    const Value column = builder_.index(3, score.uid, pos);
    const bool moves = dims_[Dim::Skv] != dims_[Dim::Sq];
    if (attention_.align == ir::Align::bottom_right && !lengths_.q && moves) {
      row = shifted(row, PointwiseMode::add, dims_[Dim::Skv], pos);
      row = shifted(row, PointwiseMode::sub, dims_[Dim::Sq], pos);
      bound -= dims_[Dim::Skv] - dims_[Dim::Sq];
    }
    if (bound != 0) row = shifted(row, PointwiseMode::add, bound, pos);
    return select(PointwiseMode::cmp_ge, row, column, score, pos);
  }

  // column + (left + 1) > row, the addition in FLOAT.
  Value left(Value score, std::int64_t bound, SourcePos pos) {
    const Value row = builder_.index(2, score.uid, pos);
    const Value column = builder_.index(3, score.uid, pos);
    const Value limit =
        builder_.element(PointwiseMode::add, DType::f32, DType::f32, column,
                         builder_.constant(DType::f32, static_cast<double>(bound + 1)), pos);
    return select(PointwiseMode::cmp_gt, limit, row, score, pos);
  }

  // row + KV - Q + right >= column
  Value right_from_end(Value score, std::int64_t bound, SourcePos pos) {
    Value row = builder_.index(2, score.uid, pos);
    const Value column = builder_.index(3, score.uid, pos);
    row = moved(row, PointwiseMode::add, *lengths_.kv, pos);
    row = moved(row, PointwiseMode::sub, *lengths_.q, pos);
    if (bound != 0) row = shifted(row, PointwiseMode::add, bound, pos);
    return select(PointwiseMode::cmp_ge, row, column, score, pos);
  }

  // column + (left + 1) - KV + Q > row, all in INT32.
  Value left_from_end(Value score, std::int64_t bound, SourcePos pos) {
    const Value row = builder_.index(2, score.uid, pos);
    Value limit = builder_.index(3, score.uid, pos);
    limit = shifted(limit, PointwiseMode::add, bound + 1, pos);
    limit = moved(limit, PointwiseMode::sub, *lengths_.kv, pos);
    limit = moved(limit, PointwiseMode::add, *lengths_.q, pos);
    return select(PointwiseMode::cmp_gt, limit, row, score, pos);
  }

  const ir::Attention& attention_;
  const ir::Dims& dims_;
  GraphBuilder& builder_;
  const Lengths& lengths_;
};

}  // namespace

Value mask_bands(const ir::Attention& attention, GraphBuilder& builder, const masks::MaskForm& form,
                 const Lengths& lengths, Value score) {
  BandMasks masks(attention, builder, lengths);
  return masks.from_end(form.from_end, masks.from_start(form.band, score));
}

}  // namespace attn::engines
