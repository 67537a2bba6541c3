#include "tests/unit/runtime/graph/sample_graphs.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "runtime/graph/operands.h"

namespace attn::graph::testing {
namespace {

using Dims = std::vector<std::int64_t>;

Dims packed(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * dims[i + 1];
  return strides;
}

class Builder {
 public:
  explicit Builder(BackendGraph& graph) : graph_(graph) {}
  virtual ~Builder() = default;

  Uid add(std::string name, DType dtype, Dims dims, Storage storage = Storage::virtual_value) {
    const Dims strides = packed(dims);
    return add(std::move(name), dtype, std::move(dims), strides, storage);
  }
  Uid add(std::string name, DType dtype, Dims dims, Dims strides, Storage storage) {
    last_ += step();
    graph_.tensors.push_back(
        {last_, std::move(name), dtype, std::move(dims), std::move(strides), storage, 16});
    return last_;
  }
  Uid scalar(std::string name, DType dtype) {
    return add(std::move(name), dtype, {1, 1, 1, 1}, Storage::host_scalar);
  }

  void matmul(Uid a, Uid b, Uid c) {
    graph_.nodes.emplace_back(Matmul{a, b, c, DType::f32, pos()});
  }
  void reduce(ReduceOp op, Uid x, Uid y) {
    graph_.nodes.emplace_back(Reduction{op, DType::f32, x, y, pos()});
  }
  Uid pointwise(PointwiseMode mode, std::vector<Uid> inputs, Uid y, DType compute = DType::f32,
                std::optional<std::int64_t> axis = {}) {
    Pointwise node{mode, compute, inputs[0], {}, {}, y, axis, pos()};
    if (inputs.size() > 1) node.b = inputs[1];
    if (inputs.size() > 2) node.t = inputs[2];
    graph_.nodes.emplace_back(node);
    return y;
  }

  // {REDUCE MAX, SUB, EXP, REDUCE ADD, LOG, ADD -> stats, DIV}; returns P.
  Uid softmax(Uid score, const Dims& dims, DType io, bool with_stats) {
    const Dims row = {dims[0], dims[1], dims[2], 1};
    const Uid max = add("row_max", DType::f32, row);
    reduce(ReduceOp::max, score, max);
    const Uid shifted = add("", DType::f32, dims);
    pointwise(PointwiseMode::sub, {score, max}, shifted);
    const Uid exp = pointwise(PointwiseMode::exp, {shifted}, add("", DType::f32, dims));
    const Uid sum = add("row_sum", DType::f32, row);
    reduce(ReduceOp::add, exp, sum);
    if (with_stats) {
      const Uid log = pointwise(PointwiseMode::log, {sum}, add("", DType::f32, row));
      pointwise(PointwiseMode::add, {max, log}, add("lse", DType::f32, row, Storage::device));
    }
    return pointwise(PointwiseMode::div, {exp, sum}, add("p", io, dims));
  }

 protected:
  virtual Uid step() { return 1; }
  virtual SourcePos pos() {
    const auto line = static_cast<std::uint32_t>(graph_.nodes.size()) + 1;
    return {line, 3};
  }
  BackendGraph& graph() { return graph_; }

 private:
  BackendGraph& graph_;
  Uid last_ = 0;
};

// A random score chain between two matmuls.
class RandomBuilder : public Builder {
 public:
  RandomBuilder(BackendGraph& graph, Random& random) : Builder(graph), random_(random) {}

  void build() {
    const DType io = random_.chance(2) ? DType::bf16 : DType::f16;
    const std::int64_t batch = size(3), groups = size(3), heads = groups * size(3);
    const std::int64_t rows = size(9), columns = size(9), depth = 8 * size(4),
                       depth_v = 8 * size(4);
    const Uid q = maybe_ragged(add("q", io, {batch, heads, rows, depth}, Storage::device));
    const Uid k = random_.chance(3)
                      ? paged_key(io, {batch, groups, depth, columns})
                      : add("k", io, {batch, groups, depth, columns},
                            {groups * columns * depth, columns * depth, 1, depth}, Storage::device);
    score_dims_ = {batch, heads, rows, columns};
    scores_ = {add(name(), DType::f32, score_dims_)};
    matmul(q, k, scores_[0]);
    override_sizes();
    for (std::size_t i = random_.below(8); i > 0; --i) add_score_op();
    Uid p = softmax(scores_.back(), score_dims_, io, random_.chance(2));
    if (random_.chance(3)) p = drop(p, io);
    const Uid v = add("v", io, {batch, groups, columns, depth_v}, Storage::device);
    const Uid o = maybe_ragged(add("o", io, {batch, heads, rows, depth_v}, Storage::device));
    matmul(p, v, o);
    override_sizes();
  }

 protected:
  Uid step() override { return static_cast<Uid>(1 + random_.below(4)); }
  SourcePos pos() override {
    if (random_.chance(3)) return {};
    return {static_cast<std::uint32_t>(random_.bits()), static_cast<std::uint32_t>(random_.bits())};
  }

 private:
  std::int64_t size(std::size_t limit) {
    return static_cast<std::int64_t>(1 + random_.below(limit));
  }

  std::string name() {
    static const std::vector<std::string> kNames = {"",   "score",    "a b",     "\"",
                                                    "\n", "\xC3\xA9", "\xFF\xFE"};
    return random_.pick(kNames);
  }

  // A second operand: another score, a scalar, or a broadcast device tensor.
  Uid operand() {
    if (random_.chance(3)) return random_.pick(scores_);
    if (random_.chance(2)) return scalar(name(), DType::f32);
    Dims dims = score_dims_;
    for (std::int64_t& dim : dims) dim = random_.chance(2) ? 1 : dim;
    return add(name(), DType::f32, dims, Storage::device);
  }

  Uid score() { return add(name(), DType::f32, score_dims_); }

  Uid maybe_ragged(Uid uid) {
    if (!random_.chance(3)) return uid;
    const DType type = random_.chance(2) ? DType::i32 : DType::i64;
    const std::int64_t batch = graph().find(uid)->dims[0];
    const Uid offsets = add(name(), type, {batch + 1, 1, 1, 1}, Storage::device);
    std::ranges::find(graph().tensors, uid, &Tensor::uid)->ragged = offsets;
    return uid;
  }

  Uid lengths(std::int64_t batch) {
    return add(name(), DType::i32, {batch, 1, 1, 1}, Storage::device);
  }

  // Overrides sizes of the last product.
  void override_sizes() {
    for (std::optional<Uid> Matmul::*size : {&Matmul::m, &Matmul::n, &Matmul::k}) {
      if (!random_.chance(3)) continue;
      const Uid uid = lengths(score_dims_[0]);
      std::get<Matmul>(graph().nodes.back()).*size = uid;
    }
  }

  // `dims` [B, H, D, S].
  Uid paged_key(DType io, const Dims& dims) {
    const std::int64_t page = size(4), pages = (dims[3] + page - 1) / page;
    const Uid pool = add("pool", io, {size(9), dims[1], page, dims[2]}, Storage::device);
    const Uid table = add("table", DType::i32, {dims[0], 1, pages, 1}, Storage::device);
    const Uid sizes = lengths(dims[0]);
    const Uid y = add("k", io, dims, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], 1, dims[2]},
                      Storage::virtual_value);
    graph().nodes.emplace_back(PagedLoad{pool, table, sizes, y, pos()});
    return y;
  }

  Uid drop(Uid p, DType io) {
    const Uid seed = add(name(), DType::i64, {1, 1, 1, 1}, Storage::device);
    const Uid offset = add(name(), DType::i64, {1, 1, 1, 1}, Storage::device);
    const Uid kept = add(name(), DType::f32, score_dims_);
    const double keep = 1 / static_cast<double>(1 + random_.below(9));
    graph().nodes.emplace_back(Rng{keep, seed, offset, kept, pos()});
    return pointwise(PointwiseMode::mul, {p, kept}, add(name(), io, score_dims_));
  }

  void add_score_op() {
    static const std::vector<PointwiseMode> kUnary = {PointwiseMode::tanh, PointwiseMode::exp,
                                                      PointwiseMode::neg, PointwiseMode::identity};
    static const std::vector<PointwiseMode> kBinary = {PointwiseMode::add, PointwiseMode::mul,
                                                       PointwiseMode::min, PointwiseMode::div};
    const Uid x = random_.pick(scores_);
    switch (random_.below(3)) {
      case 0: {
        const PointwiseMode mode = random_.pick(kUnary);
        scores_.push_back(pointwise(mode, {x}, score()));
        break;
      }
      case 1: {
        const Uid second = operand();
        const PointwiseMode mode = random_.pick(kBinary);
        scores_.push_back(pointwise(mode, {x, second}, score()));
        break;
      }
      default: add_mask(x);
    }
  }

  void add_mask(Uid x) {
    static const std::vector<PointwiseMode> kCompare = {
        PointwiseMode::cmp_ge, PointwiseMode::cmp_lt, PointwiseMode::cmp_ne};
    const auto index = [this, x](std::int64_t axis) {
      return pointwise(PointwiseMode::gen_index, {x}, add(name(), DType::i32, score_dims_),
                       DType::f32, axis);
    };
    const Uid row = index(static_cast<std::int64_t>(random_.below(3)));
    const Uid column = index(3);
    const PointwiseMode mode = random_.pick(kCompare);
    const Uid seen =
        pointwise(mode, {row, column}, add(name(), DType::boolean, score_dims_), DType::boolean);
    const Uid lowest = scalar("", DType::f32);
    scores_.push_back(pointwise(PointwiseMode::binary_select, {x, lowest, seen}, score()));
  }

  Random& random_;
  Dims score_dims_;
  std::vector<Uid> scores_;
};

struct Renumber {
  const std::map<Uid, Uid>& uids;

  void operator()(Matmul& node) const {
    node.a = uids.at(node.a);
    node.b = uids.at(node.b);
    node.c = uids.at(node.c);
    for (auto* size : {&node.m, &node.n, &node.k}) {
      if (*size) *size = uids.at(**size);
    }
  }
  void operator()(Rng& node) const {
    node.seed = uids.at(node.seed);
    node.offset = uids.at(node.offset);
    node.y = uids.at(node.y);
  }
  void operator()(PagedLoad& node) const {
    node.container = uids.at(node.container);
    node.table = uids.at(node.table);
    node.lengths = uids.at(node.lengths);
    node.y = uids.at(node.y);
  }
  void operator()(Pointwise& node) const {
    node.x = uids.at(node.x);
    if (node.b) node.b = uids.at(*node.b);
    if (node.t) node.t = uids.at(*node.t);
    node.y = uids.at(node.y);
  }
  void operator()(Reduction& node) const {
    node.x = uids.at(node.x);
    node.y = uids.at(node.y);
  }
  void operator()(Reshape& node) const {
    node.x = uids.at(node.x);
    node.y = uids.at(node.y);
  }
  void operator()(BlockDequantize& node) const {
    for (Uid* uid : {&node.x, &node.scale, &node.y}) *uid = uids.at(*uid);
  }
  void operator()(BandMask& node) const {
    for (Uid* uid : {&node.x, &node.fill, &node.y}) *uid = uids.at(*uid);
    for (auto* uid : {&node.bound, &node.lengths_q, &node.lengths_kv}) {
      if (*uid) *uid = uids.at(**uid);
    }
  }
  void operator()(SdpaForward& node) const {
    for (Uid* uid : {&node.q, &node.k, &node.v, &node.o}) *uid = uids.at(*uid);
    const auto renumber = [this](std::optional<Uid>& uid) {
      if (uid) uid = uids.at(*uid);
    };
    for (auto* uid : {&node.stats, &node.score, &node.modified, &node.sink}) renumber(*uid);
#define ATTN_SDPA_INPUT(name, attribute) renumber(node.name);
#include "runtime/graph/sdpa_inputs.def"
#undef ATTN_SDPA_INPUT
  }
};

}  // namespace

BackendGraph sample_graph() {
  BackendGraph graph;
  Builder builder(graph);
  const Dims scores = {2, 4, 3, 5};
  const auto score = [&](DType dtype) { return builder.add("", dtype, scores); };
  const Uid q = builder.add("q", DType::bf16, {2, 4, 3, 8}, {96, 8, 32, 1}, Storage::device);
  const Uid k = builder.add("k", DType::bf16, {2, 2, 8, 5}, {80, 8, 1, 16}, Storage::device);
  const Uid scale = builder.scalar("scale", DType::f32);
  const Uid cap = builder.scalar("cap", DType::f32);
  const Uid lowest = builder.scalar("", DType::f32);
  const Uid s = builder.add("score", DType::f32, scores);
  builder.matmul(q, k, s);
  const Uid scaled = builder.pointwise(PointwiseMode::mul, {s, scale}, score(DType::f32));
  const Uid ratio = builder.pointwise(PointwiseMode::div, {scaled, cap}, score(DType::f32));
  const Uid tanh = builder.pointwise(PointwiseMode::tanh, {ratio}, score(DType::f32));
  const Uid capped = builder.pointwise(PointwiseMode::mul, {tanh, cap}, score(DType::f32));
  const Uid row =
      builder.pointwise(PointwiseMode::gen_index, {capped}, score(DType::i32), DType::f32, 2);
  const Uid column =
      builder.pointwise(PointwiseMode::gen_index, {capped}, score(DType::i32), DType::f32, 3);
  const Uid seen = builder.pointwise(PointwiseMode::cmp_ge, {row, column}, score(DType::boolean),
                                     DType::boolean);
  const Uid masked = builder.pointwise(PointwiseMode::binary_select, {capped, lowest, seen},
                                       builder.add("masked", DType::f32, scores));
  const Uid p = builder.softmax(masked, scores, DType::bf16, true);
  const Uid v = builder.add("v", DType::bf16, {2, 2, 5, 8}, {80, 8, 16, 1}, Storage::device);
  const Uid o = builder.add("o", DType::bf16, {2, 4, 3, 8}, {96, 8, 32, 1}, Storage::device);
  builder.matmul(p, v, o);
  return graph;
}

BackendGraph unified_graph() {
  BackendGraph graph;
  Builder builder(graph);
  const Dims scores = {2, 2, 3, 8};
  const auto device = [&](std::string name, DType dtype, Dims dims) {
    return builder.add(std::move(name), dtype, std::move(dims), Storage::device);
  };
  const auto score = [&](std::string name) {
    return builder.add(std::move(name), DType::f32, scores);
  };
  SdpaForward node;
  node.q = device("q", DType::f16, {2, 2, 3, 8});
  node.k = device("k", DType::f16, {5, 2, 4, 8});
  node.v = device("v", DType::f16, {5, 2, 4, 8});
  node.table_k = node.table_v = device("page_table", DType::i32, {2, 1, 2, 1});
  node.lengths_q = device("lengths_q", DType::i32, {2, 1, 1, 1});
  node.lengths_kv = device("lengths_kv", DType::i32, {2, 1, 1, 1});
  node.scale = builder.scalar("scale", DType::f32);
  node.score = score("q.k");
  const Uid cap = builder.scalar("cap", DType::f32);
  const Uid capped = builder.pointwise(PointwiseMode::div, {*node.score, cap}, score(""));
  const Uid bias = device("bias", DType::f32, {1, 2, 1, 8});
  const Uid biased = builder.pointwise(PointwiseMode::add, {capped, bias}, score(""));
  const Uid lowest = builder.scalar("", DType::f32);
  const Uid bound = builder.scalar("", DType::i32);
  const Uid causal = score(""), window = score("");
  graph.nodes.emplace_back(BandMask{BandSide::right,
                                    biased,
                                    lowest,
                                    causal,
                                    std::nullopt,
                                    node.lengths_q,
                                    node.lengths_kv,
                                    {7, 3}});
  graph.nodes.emplace_back(
      BandMask{BandSide::left, causal, lowest, window, bound, std::nullopt, std::nullopt, {8, 3}});
  node.modified = window;
  node.sink = device("sinks", DType::f32, {1, 2, 1, 1});
  node.seed = device("seed", DType::i64, {1, 1, 1, 1});
  node.offset = device("offset", DType::i64, {1, 1, 1, 1});
  node.dropout = 0.1;
  node.o = device("o", DType::f16, {2, 2, 3, 8});
  node.stats = device("lse", DType::f32, {2, 2, 3, 1});
  graph.nodes.emplace_back(node);
  return graph;
}

BackendGraph controlled_graph() {
  BackendGraph graph;
  Builder builder(graph);
  const Dims scores = {2, 2, 3, 5};
  const auto device = [&](std::string name, DType dtype, Dims dims) {
    return builder.add(std::move(name), dtype, std::move(dims), Storage::device);
  };
  const Uid offsets_q = device("offsets_q", DType::i32, {3, 1, 1, 1});
  const Uid q = device("q", DType::f16, {2, 2, 3, 8});
  const Uid pool = device("k", DType::f16, {4, 2, 4, 8});
  const Uid table = device("page_table", DType::i32, {2, 1, 2, 1});
  const Uid lengths_q = device("lengths_q", DType::i32, {2, 1, 1, 1});
  const Uid lengths_kv = device("lengths_kv", DType::i32, {2, 1, 1, 1});
  const Uid k = builder.add("", DType::f16, {2, 2, 8, 5}, {80, 40, 1, 8}, Storage::virtual_value);
  graph.nodes.emplace_back(PagedLoad{pool, table, lengths_kv, k, {}});
  const Uid s = builder.add("score", DType::f32, scores);
  graph.nodes.emplace_back(Matmul{q, k, s, DType::f32, {}, lengths_q, lengths_kv, std::nullopt});
  const Uid p = builder.softmax(s, scores, DType::f32, false);
  const Uid seed = device("seed", DType::i64, {1, 1, 1, 1});
  const Uid offset = device("offset", DType::i64, {1, 1, 1, 1});
  const Uid kept = builder.add("kept", DType::f32, scores);
  graph.nodes.emplace_back(Rng{0.9, seed, offset, kept, {}});
  const Uid dropped =
      builder.pointwise(PointwiseMode::mul, {p, kept}, builder.add("", DType::f16, scores));
  const Uid v = device("v", DType::f16, {2, 2, 5, 8});
  const Uid offsets_o = device("offsets_o", DType::i64, {3, 1, 1, 1});
  const Uid o = device("o", DType::f16, {2, 2, 3, 8});
  graph.nodes.emplace_back(
      Matmul{dropped, v, o, DType::f32, {}, lengths_q, std::nullopt, lengths_kv});
  const Uid turned =
      builder.add("", DType::f16, {2, 2, 8, 3}, {48, 24, 1, 8}, Storage::virtual_value);
  graph.nodes.emplace_back(Reshape{q, turned, {}});
  std::ranges::find(graph.tensors, q, &Tensor::uid)->ragged = offsets_q;
  std::ranges::find(graph.tensors, o, &Tensor::uid)->ragged = offsets_o;
  return graph;
}

BackendGraph block_scaled_graph() {
  BackendGraph graph;
  Builder builder(graph);
  const auto scales = [&](std::string name, Dims dims) {
    const Uid uid = builder.add(std::move(name), DType::e8m0, std::move(dims), Storage::device);
    std::ranges::find(graph.tensors, uid, &Tensor::uid)->reordering = Reordering::f8_128x4;
    return uid;
  };
  const Uid q = builder.add("q", DType::e4m3, {2, 2, 3, 64}, Storage::device);
  const Uid of_q = scales("descale_q", {2, 2, 128, 4});
  const Uid whole_q = builder.add("", DType::f32, {2, 2, 3, 64}, Storage::virtual_value);
  graph.nodes.emplace_back(BlockDequantize{q, of_q, whole_q, 32, {4, 3}});
  const Uid v = builder.add("v", DType::e4m3, {2, 2, 64, 40}, Storage::device);
  const Uid of_v = scales("descale_v", {2, 2, 4, 128});
  const Uid whole_v = builder.add("", DType::f32, {2, 2, 64, 40}, Storage::virtual_value);
  graph.nodes.emplace_back(BlockDequantize{v, of_v, whole_v, 32, {}});
  const Uid o = builder.add("o", DType::bf16, {2, 2, 3, 40}, Storage::device);
  graph.nodes.emplace_back(Matmul{whole_q, whole_v, o, DType::f32, {}, {}, {}, {}});
  return graph;
}

BackendGraph random_graph(Random& random) {
  BackendGraph graph;
  RandomBuilder(graph, random).build();
  return graph;
}

BackendGraph disguised(const BackendGraph& graph, Random& random) {
  std::map<Uid, Uid> uids;
  std::set<Uid> taken;
  BackendGraph other = graph;
  for (Tensor& tensor : other.tensors) {
    Uid uid = 0;
    do uid = static_cast<Uid>(random.bits());
    while (!taken.insert(uid).second);
    uids.emplace(tensor.uid, uid);
    tensor.uid = uid;
    tensor.name += "'";
  }
  for (Tensor& tensor : other.tensors) {
    if (tensor.ragged) tensor.ragged = uids.at(*tensor.ragged);
  }
  std::ranges::sort(other.tensors, {}, &Tensor::uid);
  for (Node& node : other.nodes) {
    std::visit(Renumber{uids}, node);
    std::visit([](auto& op) { op.pos.line += 100; }, node);
  }
  return other;
}

Uid counterpart(const BackendGraph& graph, const BackendGraph& other, Uid uid) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    std::vector<Uid> ours = inputs_of(graph.nodes[i]);
    std::vector<Uid> theirs = inputs_of(other.nodes[i]);
    ours.push_back(output_of(graph.nodes[i]));
    theirs.push_back(output_of(other.nodes[i]));
    for (std::size_t j = 0; j < ours.size(); ++j) {
      if (ours[j] == uid) return theirs[j];
      if (graph.find(ours[j])->ragged == uid) return *other.find(theirs[j])->ragged;
    }
  }
  return uid;
}

}  // namespace attn::graph::testing
