#include "runtime/graph/canonical.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tests/unit/runtime/graph/sample_graphs.h"

namespace attn::graph {
namespace {

using testing::Random;

DType other(DType type) { return type == DType::f64 ? DType::i64 : DType::f64; }

TEST(Canonical, IgnoresUidsNamesPositionsAndTheOrderOfTensors) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    const BackendGraph graph = testing::random_graph(random);
    const BackendGraph disguise = testing::disguised(graph, random);
    ASSERT_EQ(canonical_text(graph), canonical_text(disguise)) << to_text(graph);
  }
}

TEST(Canonical, NumbersCorrespond) {
  Random random(2);
  const BackendGraph graph = testing::sample_graph();
  const BackendGraph disguise = testing::disguised(graph, random);
  const Canonical ours = canonicalize(graph);
  const Canonical theirs = canonicalize(disguise);
  ASSERT_EQ(ours.index.size(), graph.tensors.size());
  for (const auto& [uid, number] : ours.index) {
    EXPECT_EQ(theirs.index.at(testing::counterpart(graph, disguise, uid)), number);
  }
}

// All variants of a sample with one change each, and the name of the change. Adding a field breaks
// the build here: add variants below, and then the field's name here.
template <typename T>
void name_fields(const T& of) {
  if constexpr (std::is_same_v<T, BackendGraph>) {
    [[maybe_unused]] const auto& [tensors, nodes] = of;
  } else if constexpr (std::is_same_v<T, Tensor>) {
    [[maybe_unused]] const auto& [uid, name, dtype, dims, strides, storage, alignment, ragged,
                                  reordering] = of;
  } else if constexpr (std::is_same_v<T, Matmul>) {
    [[maybe_unused]] const auto& [a, b, c, compute, pos, m, n, k] = of;
  } else if constexpr (std::is_same_v<T, Pointwise>) {
    [[maybe_unused]] const auto& [mode, compute, x, b, t, y, axis, pos] = of;
  } else if constexpr (std::is_same_v<T, Reduction>) {
    [[maybe_unused]] const auto& [op, compute, x, y, pos] = of;
  } else if constexpr (std::is_same_v<T, Rng>) {
    [[maybe_unused]] const auto& [keep, seed, offset, y, pos] = of;
  } else if constexpr (std::is_same_v<T, PagedLoad>) {
    [[maybe_unused]] const auto& [container, table, lengths, y, pos] = of;
  } else if constexpr (std::is_same_v<T, Reshape>) {
    [[maybe_unused]] const auto& [x, y, pos] = of;
  } else if constexpr (std::is_same_v<T, BlockDequantize>) {
    [[maybe_unused]] const auto& [x, scale, y, size, pos] = of;
  } else if constexpr (std::is_same_v<T, BandMask>) {
    [[maybe_unused]] const auto& [side, x, fill, y, bound, lengths_q, lengths_kv, pos] = of;
  } else {
    static_assert(std::is_same_v<T, SdpaForward>);
    [[maybe_unused]] const auto& [q, k, v, o, stats, score, modified, sink, scale, lengths_q,
                                  lengths_kv, table_k, table_v, seed, offset, dropout, pos] = of;
  }
}

class Variants {
 public:
  explicit Variants(BackendGraph sample) : sample_(std::move(sample)) {
    name_fields(sample_);
    for (std::size_t i = 0; i < sample_.tensors.size(); ++i) tensor_variants(i);
    for (std::size_t i = 0; i < sample_.nodes.size(); ++i) {
      node_ = i;
      std::visit(
          [this](const auto& node) {
            name_fields(node);
            node_variants(node);
          },
          sample_.nodes[i]);
    }
  }

  std::vector<std::pair<std::string, BackendGraph>> all;

 private:
  void add(std::string what, const std::function<void(BackendGraph&)>& change) {
    BackendGraph graph = sample_;
    change(graph);
    all.emplace_back(std::move(what), std::move(graph));
  }

  void tensor_variants(std::size_t i) {
    const std::string where = "tensor " + std::to_string(i);
    name_fields(sample_.tensors[i]);
    add(where + " dtype", [i](auto& g) { g.tensors[i].dtype = other(g.tensors[i].dtype); });
    for (std::size_t d = 0; d < 4; ++d) {
      add(where + " dim", [i, d](auto& g) { g.tensors[i].dims[d] += 1; });
      add(where + " stride", [i, d](auto& g) { g.tensors[i].strides[d] += 1; });
    }
    for (int storage = 0; storage < 3; ++storage) {
      if (static_cast<Storage>(storage) == sample_.tensors[i].storage) continue;
      add(where + " storage",
          [i, storage](auto& g) { g.tensors[i].storage = static_cast<Storage>(storage); });
    }
    add(where + " alignment", [i](auto& g) { g.tensors[i].alignment *= 2; });
    add(where + " reordering", [i](auto& g) {
      Reordering& order = g.tensors[i].reordering;
      order = order == Reordering::none ? Reordering::f8_128x4 : Reordering::none;
    });
    for (const Tensor& offsets : sample_.tensors) {
      if (offsets.uid == sample_.tensors[i].ragged || offsets.uid == sample_.tensors[i].uid)
        continue;
      add(where + " ragged", [i, &offsets](auto& g) { g.tensors[i].ragged = offsets.uid; });
    }
    if (!sample_.tensors[i].ragged) return;
    add(where + " not ragged", [i](auto& g) { g.tensors[i].ragged.reset(); });
  }

  // Applies to the current node, which holds an Op.
  template <typename Op>
  void vary(const std::string& what, const std::function<void(Op&)>& change) {
    add("node " + std::to_string(node_) + ' ' + what,
        [this, &change](auto& g) { change(std::get<Op>(g.nodes[node_])); });
  }

  template <typename Op>
  void vary_optional(const std::string& what, std::optional<Uid> Op::*field) {
    const std::optional<Uid> now = std::get<Op>(sample_.nodes[node_]).*field;
    if (now) vary<Op>(what, [field](Op& op) { (op.*field).reset(); });
    for (const Tensor& tensor : sample_.tensors) {
      if (tensor.uid == now) continue;
      vary<Op>(what, [&tensor, field](Op& op) { op.*field = tensor.uid; });
    }
  }

  template <typename Op>
  void vary_uid(const std::string& what, Uid Op::*field) {
    for (const Tensor& tensor : sample_.tensors) {
      if (tensor.uid == std::get<Op>(sample_.nodes[node_]).*field) continue;
      vary<Op>(what, [&tensor, field](Op& op) { op.*field = tensor.uid; });
    }
  }

  void node_variants(const Matmul&) {
    vary<Matmul>("compute", [](auto& op) { op.compute = other(op.compute); });
    vary_uid("a", &Matmul::a);
    vary_uid("b", &Matmul::b);
    vary_uid("c", &Matmul::c);
    vary_optional("m", &Matmul::m);
    vary_optional("n", &Matmul::n);
    vary_optional("k", &Matmul::k);
  }

  void node_variants(const Rng&) {
    vary<Rng>("keep", [](auto& op) { op.keep = 0.8; });
    vary_uid("seed", &Rng::seed);
    vary_uid("offset", &Rng::offset);
    vary_uid("y", &Rng::y);
  }

  void node_variants(const PagedLoad&) {
    vary_uid("container", &PagedLoad::container);
    vary_uid("table", &PagedLoad::table);
    vary_uid("lengths", &PagedLoad::lengths);
    vary_uid("y", &PagedLoad::y);
  }

  void node_variants(const Reshape&) {
    vary_uid("x", &Reshape::x);
    vary_uid("y", &Reshape::y);
  }

  void node_variants(const BlockDequantize&) {
    vary<BlockDequantize>("size", [](auto& op) { op.size = 16; });
    vary_uid("x", &BlockDequantize::x);
    vary_uid("scale", &BlockDequantize::scale);
    vary_uid("y", &BlockDequantize::y);
  }

  void node_variants(const BandMask&) {
    vary<BandMask>("side", [](auto& op) {
      op.side = op.side == BandSide::left ? BandSide::right : BandSide::left;
    });
    vary_uid("x", &BandMask::x);
    vary_uid("fill", &BandMask::fill);
    vary_uid("y", &BandMask::y);
    vary_optional("bound", &BandMask::bound);
    vary_optional("lengths_q", &BandMask::lengths_q);
    vary_optional("lengths_kv", &BandMask::lengths_kv);
  }

  void node_variants(const SdpaForward&) {
    vary_uid("q", &SdpaForward::q);
    vary_uid("k", &SdpaForward::k);
    vary_uid("v", &SdpaForward::v);
    vary_uid("o", &SdpaForward::o);
    vary_optional("stats", &SdpaForward::stats);
    vary_optional("score", &SdpaForward::score);
    vary_optional("modified", &SdpaForward::modified);
    vary_optional("sink", &SdpaForward::sink);
#define ATTN_SDPA_INPUT(name, attribute) vary_optional(#name, &SdpaForward::name);
#include "runtime/graph/sdpa_inputs.def"
#undef ATTN_SDPA_INPUT
    vary<SdpaForward>("dropout", [](auto& op) { op.dropout = 0.2; });
  }

  void node_variants(const Reduction&) {
    vary<Reduction>(
        "op", [](auto& op) { op.op = op.op == ReduceOp::max ? ReduceOp::add : ReduceOp::max; });
    vary<Reduction>("compute", [](auto& op) { op.compute = other(op.compute); });
    vary_uid("x", &Reduction::x);
    vary_uid("y", &Reduction::y);
  }

  void node_variants(const Pointwise& node) {
    const PointwiseMode modes[] = {
#define ATTN_POINTWISE(name, cudnn_mode, inputs) PointwiseMode::name,
#include "runtime/graph/pointwise.def"
#undef ATTN_POINTWISE
    };
    for (const PointwiseMode mode : modes) {
      if (mode != node.mode) vary<Pointwise>("mode", [mode](auto& op) { op.mode = mode; });
    }
    vary<Pointwise>("compute", [](auto& op) { op.compute = other(op.compute); });
    vary_uid("x", &Pointwise::x);
    vary_uid("y", &Pointwise::y);
    vary<Pointwise>("axis", [](auto& op) { op.axis = op.axis ? *op.axis - 1 : 2; });
    vary<Pointwise>("b", [](auto& op) { op.b = op.b ? std::optional<Uid>() : op.x; });
    vary<Pointwise>("t", [](auto& op) { op.t = op.t ? std::optional<Uid>() : op.x; });
    for (const Tensor& tensor : sample_.tensors) {
      if (node.b && *node.b != tensor.uid) {
        vary<Pointwise>("b", [&tensor](auto& op) { op.b = tensor.uid; });
      }
      if (node.t && *node.t != tensor.uid) {
        vary<Pointwise>("t", [&tensor](auto& op) { op.t = tensor.uid; });
      }
    }
  }

  const BackendGraph sample_;
  std::size_t node_ = 0;
};

TEST(Canonical, SeesEveryField) {
  for (const BackendGraph& sample : {testing::sample_graph(), testing::controlled_graph(),
                                     testing::unified_graph(), testing::block_scaled_graph()}) {
    const std::string original = canonical_text(sample);
    const Variants variants(sample);
    EXPECT_GT(variants.all.size(), 200U);
    for (const auto& [what, graph] : variants.all) {
      EXPECT_NE(canonical_text(graph), original) << what;
    }
  }
}

TEST(Canonical, SeesMissingAndAdditionalParts) {
  const BackendGraph sample = testing::sample_graph();
  std::set<std::string> texts = {canonical_text(sample)};
  for (std::size_t i = 0; i < sample.nodes.size(); ++i) {
    BackendGraph shorter = sample;
    shorter.nodes.erase(shorter.nodes.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_TRUE(texts.insert(canonical_text(shorter)).second) << i;
  }
  BackendGraph larger = sample;
  larger.tensors.push_back({99, "", DType::f32, {1, 1, 1, 1}, {1, 1, 1, 1}, Storage::device, 16});
  EXPECT_TRUE(texts.insert(canonical_text(larger)).second);
}

TEST(Canonical, TellsASecondInputFromAThird) {
  BackendGraph with_b = testing::sample_graph();
  BackendGraph with_t = with_b;
  std::get<Pointwise>(with_b.nodes[3]).b = 1;
  std::get<Pointwise>(with_t.nodes[3]).t = 1;
  EXPECT_NE(canonical_text(with_b), canonical_text(with_t));
}

}  // namespace
}  // namespace attn::graph
