#include "tests/unit/runtime/worker/graphs.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace attn::testing {
namespace {

using graph::BackendGraph;
using graph::Matmul;
using graph::Node;
using graph::Pointwise;
using graph::PointwiseMode;
using graph::ReduceOp;
using graph::Reduction;
using graph::Storage;
using graph::Tensor;
using graph::Uid;
using Dims = std::vector<std::int64_t>;

constexpr Uid kQ = 1, kK = 2, kV = 3, kScale = 4, kMinusInfinity = 5, kO = 6, kStats = 7, kMask = 8;

Dims packed_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

class Builder {
 public:
  explicit Builder(const AttentionShape& shape)
      : shape_(shape),
        scores_{shape.batch, shape.heads_q, shape.seq_q, shape.seq_kv},
        rows_{shape.batch, shape.heads_q, shape.seq_q, 1} {}

  BackendGraph build(Mask mask) {
    const Uid scaled = scores();
    const Uid masked = mask == Mask::none ? scaled : masked_scores(scaled, mask);
    softmax_and_output(masked);
    std::ranges::sort(graph_.tensors, {}, &Tensor::uid);
    return std::move(graph_);
  }

 private:
  SourcePos here() const { return {static_cast<std::uint32_t>(graph_.nodes.size()) + 1, 3}; }

  Uid add(Uid uid, DType dtype, const Dims& dims, const Dims& strides, Storage storage) {
    Tensor tensor;
    tensor.uid = uid;
    tensor.dtype = dtype;
    tensor.dims = dims;
    tensor.strides = strides;
    tensor.storage = storage;
    graph_.tensors.push_back(std::move(tensor));
    return uid;
  }
  Uid device(Uid uid, DType dtype, const Dims& dims) {
    return add(uid, dtype, dims, packed_strides(dims), Storage::device);
  }
  Uid scalar(Uid uid) {
    return add(uid, DType::f32, {1, 1, 1, 1}, {1, 1, 1, 1}, Storage::host_scalar);
  }
  Uid value(DType dtype, const Dims& dims) {
    return add(next_++, dtype, dims, packed_strides(dims), Storage::virtual_value);
  }

  Uid pointwise(PointwiseMode mode, DType compute, Uid y, Uid x, std::optional<Uid> b = {},
                std::optional<Uid> t = {}, std::optional<std::int64_t> axis = {}) {
    Pointwise node;
    node.mode = mode;
    node.compute = compute;
    node.x = x;
    node.b = b;
    node.t = t;
    node.y = y;
    node.axis = axis;
    node.pos = here();
    graph_.nodes.emplace_back(node);
    return y;
  }
  Uid reduce(ReduceOp op, Uid x) {
    const Uid y = value(DType::f32, rows_);
    graph_.nodes.emplace_back(Reduction{op, DType::f32, x, y, here()});
    return y;
  }

  Uid scores() {
    const AttentionShape& s = shape_;
    device(kQ, s.dtype, {s.batch, s.heads_q, s.seq_q, s.head_dim});
    const Dims k_storage = {s.batch, s.heads_kv, s.seq_kv, s.head_dim};
    const Dims k = packed_strides(k_storage);
    add(kK, s.dtype, {s.batch, s.heads_kv, s.head_dim, s.seq_kv}, {k[0], k[1], k[3], k[2]},
        Storage::device);
    device(kV, s.dtype, k_storage);
    const Uid raw = value(DType::f32, scores_);
    graph_.nodes.emplace_back(Matmul{kQ, kK, raw, DType::f32, here()});
    return pointwise(PointwiseMode::mul, DType::f32, value(DType::f32, scores_), raw,
                     scalar(kScale));
  }

  Uid masked_scores(Uid score, Mask mask) {
    scalar(kMinusInfinity);
    const Uid keep = mask == Mask::u8_tensor ? device(kMask, DType::u8, scores_) : causal(score);
    const bool swapped = mask == Mask::constant_first;
    return pointwise(PointwiseMode::binary_select, DType::f32, value(DType::f32, scores_),
                     swapped ? kMinusInfinity : score, swapped ? score : kMinusInfinity, keep);
  }

  Uid causal(Uid score) {
    const Uid row = pointwise(PointwiseMode::gen_index, DType::f32, value(DType::i32, scores_),
                              score, {}, {}, 2);
    const Uid column = pointwise(PointwiseMode::gen_index, DType::f32, value(DType::i32, scores_),
                                 score, {}, {}, 3);
    return pointwise(PointwiseMode::cmp_ge, DType::boolean, value(DType::boolean, scores_), row,
                     column);
  }

  void softmax_and_output(Uid score) {
    const Uid max = reduce(ReduceOp::max, score);
    const Uid shifted =
        pointwise(PointwiseMode::sub, DType::f32, value(DType::f32, scores_), score, max);
    const Uid exp = pointwise(PointwiseMode::exp, DType::f32, value(DType::f32, scores_), shifted);
    const Uid sum = reduce(ReduceOp::add, exp);
    const Uid log = pointwise(PointwiseMode::log, DType::f32, value(DType::f32, rows_), sum);
    pointwise(PointwiseMode::add, DType::f32, device(kStats, DType::f32, rows_), max, log);
    const Uid weights =
        pointwise(PointwiseMode::div, DType::f32, value(shape_.dtype, scores_), exp, sum);
    device(kO, shape_.dtype, {shape_.batch, shape_.heads_q, shape_.seq_q, shape_.head_dim});
    graph_.nodes.emplace_back(Matmul{weights, kV, kO, DType::f32, here()});
  }

  AttentionShape shape_;
  Dims scores_;
  Dims rows_;
  Uid next_ = 100;
  BackendGraph graph_;
};

}  // namespace

BackendGraph attention_graph(const AttentionShape& shape, Mask mask) {
  return Builder(shape).build(mask);
}

}  // namespace attn::testing
