#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/runtime/graph/sample_graphs.h"

namespace attn::graph {
namespace {

using ::testing::HasSubstr;

TEST(Validate, AcceptsTheSampleAndEveryRandomGraph) {
  EXPECT_TRUE(validate(testing::sample_graph()).ok());
  EXPECT_TRUE(validate(testing::controlled_graph()).ok());
  const Status unified = validate(testing::unified_graph());
  EXPECT_TRUE(unified.ok()) << unified.error().message;
  testing::Random random(4);
  for (int round = 0; round < 200; ++round) {
    const BackendGraph graph = testing::random_graph(random);
    const Status status = validate(graph);
    ASSERT_TRUE(status.ok()) << status.error().message << '\n' << to_text(graph);
    ASSERT_TRUE(validate(testing::disguised(graph, random)).ok());
  }
}

struct Refusal {
  const char* name;
  std::function<void(BackendGraph&)> change;
  const char* message;
  const char* payload;
};

Pointwise& pointwise(BackendGraph& graph, std::size_t node) {
  return std::get<Pointwise>(graph.nodes[node]);
}

class ValidateRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(ValidateRefuses, AndNamesThePlace) {
  BackendGraph graph = testing::sample_graph();
  GetParam().change(graph);
  const Status status = validate(graph);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(status.error().message, HasSubstr(GetParam().message));
  EXPECT_EQ(status.error().payload, GetParam().payload);
}

// Row-major.
Tensor on_device(Uid uid, const std::vector<std::int64_t>& dims) {
  Tensor tensor;
  tensor.uid = uid;
  tensor.dims = dims;
  tensor.strides.assign(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) tensor.strides[i - 1] = tensor.strides[i] * dims[i];
  tensor.storage = Storage::device;
  return tensor;
}

// A graph of a single product.
BackendGraph plain_product() {
  BackendGraph graph;
  graph.tensors = {on_device(1, {4, 16, 8}), on_device(2, {4, 8, 32}), on_device(3, {4, 16, 32})};
  Matmul product;
  product.a = 1;
  product.b = 2;
  product.c = 3;
  graph.nodes.emplace_back(product);
  return graph;
}

TEST(ValidatePlainProduct, HasRankThree) {
  EXPECT_TRUE(validate(plain_product()).ok());
  BackendGraph graph = plain_product();
  graph.tensors[1].dims = {2, 8, 32};
  EXPECT_THAT(validate(graph).error().message, HasSubstr("does not give"));
  graph = plain_product();
  graph.tensors[2].dims = {4, 16, 31};
  EXPECT_THAT(validate(graph).error().message, HasSubstr("does not give"));
  graph = plain_product();
  std::get<Matmul>(graph.nodes[0]).m = 1;
  EXPECT_THAT(validate(graph).error().message, HasSubstr("batch sizes but rank 3"));
  graph = plain_product();
  graph.tensors[0].dims = {4, 1, 16, 8};
  graph.tensors[0].strides = {128, 128, 8, 1};
  EXPECT_THAT(validate(graph).error().message, HasSubstr("has rank 3"));
}

// A graph of a single reduction: [2,4,3,8], summed to other dims.
BackendGraph plain_sum(const std::vector<std::int64_t>& dims) {
  BackendGraph graph;
  graph.tensors = {on_device(1, {2, 4, 3, 8}), on_device(2, dims)};
  graph.nodes.emplace_back(Reduction{ReduceOp::add, DType::f32, 1, 2, {}});
  return graph;
}

TEST(ValidateReduction, SumsWholeAxesAndGroupsOfHeads) {
  EXPECT_TRUE(validate(plain_sum({2, 2, 3, 8})).ok());
  EXPECT_TRUE(validate(plain_sum({2, 1, 3, 8})).ok());
  EXPECT_TRUE(validate(plain_sum({2, 2, 1, 8})).ok());
  const std::vector<std::vector<std::int64_t>> refused = {
      {2, 3, 3, 8}, {2, 8, 3, 8}, {2, 4, 3, 4}, {2, 2, 3, 2}};
  for (const auto& dims : refused) {
    EXPECT_THAT(validate(plain_sum(dims)).error().message, HasSubstr("does not reduce to"));
  }
}

// In the sample: %1 q, %2 k, %3 scale, %6 the first score; node 0 matmul, 1 mul, 5 and 6 gen_index,
// 7 cmp_ge, 8 binary_select, 9 reduce_max.
INSTANTIATE_TEST_SUITE_P(
    Graphs, ValidateRefuses,
    ::testing::Values(
        Refusal{"Empty", [](auto& g) { g = {}; }, "has no nodes", ""},
        Refusal{"DoubleUid", [](auto& g) { g.tensors[1].uid = 1; }, "%1 is defined twice",
                R"({"uid": 1})"},
        Refusal{"UnsortedUids", [](auto& g) { std::swap(g.tensors[0], g.tensors[1]); },
                "%1 comes after %2", R"({"uid": 1})"},
        Refusal{"Rank", [](auto& g) { g.tensors[0].dims.pop_back(); }, "rank 3", R"({"uid": 1})"},
        Refusal{"StrideRank", [](auto& g) { g.tensors[0].strides.push_back(1); }, "5 strides",
                R"({"uid": 1})"},
        Refusal{"ZeroDim", [](auto& g) { g.tensors[0].dims[0] = 0; }, "below 1", R"({"uid": 1})"},
        Refusal{"NegativeStride", [](auto& g) { g.tensors[0].strides[0] = -1; }, "below 0",
                R"({"uid": 1})"},
        Refusal{"TooLarge", [](auto& g) { g.tensors[0].strides[0] = std::int64_t{1} << 62; },
                "too large", R"({"uid": 1})"},
        Refusal{"Alignment", [](auto& g) { g.tensors[0].alignment = 12; }, "alignment 12",
                R"({"uid": 1})"},
        Refusal{"NoAlignment", [](auto& g) { g.tensors[0].alignment = 0; }, "alignment 0",
                R"({"uid": 1})"},
        Refusal{"LongScalar", [](auto& g) { g.tensors[2].dims[3] = 2; }, "more than one element",
                R"({"uid": 3})"},
        Refusal{"Unused",
                [](auto& g) {
                  g.tensors.push_back(g.tensors[0]);
                  g.tensors.back().uid = 99;
                },
                "%99 is not used by any node", R"({"uid": 99})"},
        Refusal{"UnknownInput", [](auto& g) { pointwise(g, 1).x = 77; }, "node 1 (mul): reads %77",
                R"({"node": 1})"},
        Refusal{"UnknownOutput", [](auto& g) { pointwise(g, 1).y = 77; }, "node 1 (mul): writes %77",
                R"({"node": 1})"},
        Refusal{"UseBeforeDefinition", [](auto& g) { std::swap(g.nodes[0], g.nodes[1]); },
                "reads %6 before a node has produced it", R"({"node": 0})"},
        Refusal{"WrittenTwice", [](auto& g) { pointwise(g, 2).y = 7; }, "writes %7 a second time",
                R"({"node": 2})"},
        Refusal{"WritesAnInput", [](auto& g) { pointwise(g, 1).y = 1; },
                "writes %1 after it was read", R"({"node": 1})"},
        Refusal{"WritesAScalar",
                [](auto& g) {
                  pointwise(g, 1).y = 4;
                },
                "writes a host scalar", R"({"node": 1})"},
        Refusal{"WritesOneAddressTwice", [](auto& g) { g.tensors.back().strides[1] = 0; },
                "stride of 0", R"({"node": 16})"},
        Refusal{"MissingInput", [](auto& g) { pointwise(g, 1).b.reset(); }, "takes 2 inputs",
                R"({"node": 1})"},
        Refusal{"SurplusInput", [](auto& g) { pointwise(g, 3).b = 3; }, "takes 1 input, x alone",
                R"({"node": 3})"},
        Refusal{"MissingChoice", [](auto& g) { pointwise(g, 8).t.reset(); }, "takes 3 inputs",
                R"({"node": 8})"},
        Refusal{"MissingAxis", [](auto& g) { pointwise(g, 5).axis.reset(); }, "has no axis",
                R"({"node": 5})"},
        Refusal{"WrongAxis", [](auto& g) { pointwise(g, 5).axis = 4; }, "axis 4", R"({"node": 5})"},
        Refusal{"SurplusAxis", [](auto& g) { pointwise(g, 1).axis = 2; }, "takes no axis",
                R"({"node": 1})"},
        Refusal{"MatmulDepth", [](auto& g) { g.tensors[1].dims[2] = 7; }, "does not give",
                R"({"node": 0})"},
        Refusal{"MatmulHeads", [](auto& g) { g.tensors[1].dims[1] = 3; }, "does not give",
                R"({"node": 0})"},
        Refusal{"MatmulBatch", [](auto& g) { g.tensors[1].dims[0] = 3; }, "does not give",
                R"({"node": 0})"},
        Refusal{"MatmulResult", [](auto& g) { g.tensors[5].dims[3] = 6; }, "does not give",
                R"({"node": 0})"},
        Refusal{"Broadcast", [](auto& g) { g.tensors[6].dims[3] = 6; }, "does not broadcast to",
                R"({"node": 1})"},
        Refusal{"ResultTooLarge",
                [](auto& g) { pointwise(g, 1) = {PointwiseMode::identity, DType::f32, 3, {}, {}, 7,
                                                 {}, {}}; },
                "larger than the broadcast inputs", R"({"node": 1})"},
        Refusal{"CompareGivesANumber", [](auto& g) { g.tensors[12].dtype = DType::f32; },
                "gives a boolean", R"({"node": 7})"},
        Refusal{"ChoiceByANumber", [](auto& g) { pointwise(g, 8).t = 10; }, "not boolean",
                R"({"node": 8})"},
        Refusal{"LogicOnNumbers", [](auto& g) { pointwise(g, 7).mode = PointwiseMode::logical_and; },
                "needs boolean inputs", R"({"node": 7})"},
        Refusal{"ReductionShape", [](auto& g) { g.tensors[14].dims[2] = 2; }, "does not reduce to",
                R"({"node": 9})"}),
    [](const auto& test) { return std::string(test.param.name); });

graph::Tensor& tensor(BackendGraph& graph, std::string_view name) {
  return *std::ranges::find(graph.tensors, name, &Tensor::name);
}

class ValidateRefusesControls : public ::testing::TestWithParam<Refusal> {};

TEST_P(ValidateRefusesControls, AndNamesThePlace) {
  BackendGraph graph = testing::controlled_graph();
  GetParam().change(graph);
  const Status status = validate(graph);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr(GetParam().message));
  EXPECT_EQ(status.error().payload, GetParam().payload);
}

// In the sample: node 0 paged load, 1 and 9 matmul, 7 rng, 10 a reshape.
INSTANTIATE_TEST_SUITE_P(
    Graphs, ValidateRefusesControls,
    ::testing::Values(
        Refusal{"UnknownOffsets", [](auto& g) { tensor(g, "q").ragged = 99; }, "undefined offsets",
                R"({"uid": 2})"},
        Refusal{"OffsetsOfAVirtualTensor", [](auto& g) { tensor(g, "score").ragged = 1; },
                "not in device memory", R"({"uid": 8})"},
        Refusal{"FewOffsets", [](auto& g) { tensor(g, "offsets_q").dims[0] = 2; },
                "not batches + 1 integers", R"({"uid": 2})"},
        Refusal{"RealOffsets", [](auto& g) { tensor(g, "offsets_q").dtype = DType::f32; },
                "not batches + 1 integers", R"({"uid": 2})"},
        Refusal{"FewLengths", [](auto& g) { tensor(g, "lengths_q").dims[0] = 1; },
                "not i32 sizes of 2 batches", R"({"node": 1})"},
        Refusal{"RealLengths", [](auto& g) { tensor(g, "lengths_q").dtype = DType::f32; },
                "not i32 sizes of 2 batches", R"({"node": 1})"},
        Refusal{"PagesOfOtherHeads", [](auto& g) { tensor(g, "k").dims[1] = 3; },
                "does not have the heads and depth of", R"({"node": 0})"},
        Refusal{"ShortTable", [](auto& g) { tensor(g, "page_table").dims[2] = 1; },
                "not a page table for", R"({"node": 0})"},
        Refusal{"RealPagedLengths", [](auto& g) { tensor(g, "lengths_kv").dtype = DType::i64; },
                "not lengths of 2 batches", R"({"node": 0})"},
        Refusal{"ReshapeToFewerElements", [](auto& g) { g.tensors.back().dims[3] = 2; },
                "does not become", R"({"node": 10})"},
        Refusal{"ReshapeToMoreElements", [](auto& g) { g.tensors.back().dims[0] = 4; },
                "does not become", R"({"node": 10})"},
        Refusal{"ReshapeOfNothing", [](auto& g) { std::get<Reshape>(g.nodes[10]).x = 99; },
                "reads %99", R"({"node": 10})"},
        Refusal{"KeepsNothing", [](auto& g) { std::get<Rng>(g.nodes[7]).keep = 0; },
                "has keep probability 0", R"({"node": 7})"},
        Refusal{"ShortSeed", [](auto& g) { tensor(g, "seed").dtype = DType::i32; },
                "is not a single i64", R"({"node": 7})"}),
    [](const auto& test) { return std::string(test.param.name); });

// Scales of blocks: what they are of, their type and order, and that there are enough.
TEST(Validate, ScalesOfBlocks) {
  EXPECT_TRUE(validate(testing::block_scaled_graph()).ok());
  const auto refusal = [](auto change) {
    BackendGraph graph = testing::block_scaled_graph();
    change(graph);
    const Status status = validate(graph);
    return status.ok() ? "accepted" : status.error().message;
  };
  EXPECT_THAT(refusal([](auto& g) { tensor(g, "q").dtype = DType::bf16; }), HasSubstr("8 bits"));
  EXPECT_THAT(refusal([](auto& g) { tensor(g, "descale_q").dtype = DType::u8; }),
              HasSubstr("not e8m0 in the order f8_128x4"));
  EXPECT_THAT(refusal([](auto& g) { tensor(g, "descale_v").reordering = Reordering::none; }),
              HasSubstr("not e8m0 in the order f8_128x4"));
  EXPECT_THAT(refusal([](auto& g) { tensor(g, "descale_q").dims[3] = 1; }),
              HasSubstr("are not the scales of"));
  EXPECT_THAT(refusal([](auto& g) { tensor(g, "descale_v").dims[3] = 32; }),
              HasSubstr("are not the scales of"));
  EXPECT_THAT(refusal([](auto& g) { std::get<BlockDequantize>(g.nodes[0]).size = 0; }),
              HasSubstr("has blocks of 0"));
}

SdpaForward& sdpa(BackendGraph& graph) { return std::get<SdpaForward>(graph.nodes.back()); }

BandMask& band(BackendGraph& graph, std::size_t node) {
  return std::get<BandMask>(graph.nodes[node]);
}

class ValidateRefusesUnified : public ::testing::TestWithParam<Refusal> {};

TEST_P(ValidateRefusesUnified, AndNamesThePlace) {
  BackendGraph graph = testing::unified_graph();
  GetParam().change(graph);
  const Status status = validate(graph);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr(GetParam().message));
  EXPECT_EQ(status.error().payload, GetParam().payload);
}

INSTANTIATE_TEST_SUITE_P(
    Graphs, ValidateRefusesUnified,
    ::testing::Values(Refusal{"NotLast", [](auto& g) { std::swap(g.nodes[3], g.nodes[4]); },
                              "reads %", R"({"node": 0})"},
                      Refusal{"ScoreToNobody",
                              [](auto& g) { g.nodes.erase(g.nodes.begin(), g.nodes.end() - 1); },
                              "reads %", R"({"node": 0})"},
                      Refusal{"NotModified", [](auto& g) { sdpa(g).modified.reset(); },
                              "has no modified score", R"({"node": 4})"},
                      Refusal{"AReductionBefore",
                              [](auto& g) {
                                const auto& add = std::get<Pointwise>(g.nodes[1]);
                                g.nodes[1] = Reduction{ReduceOp::max, DType::f32, add.x, add.y, {}};
                              },
                              "does not modify the score", R"({"node": 1})"},
                      Refusal{"BoundOfReals", [](auto& g) { band(g, 3).bound = band(g, 3).fill; },
                              "is not an i32 scalar", R"({"node": 3})"},
                      Refusal{"LeftWithoutBound", [](auto& g) { band(g, 3).bound.reset(); },
                              "has no bound", R"({"node": 3})"},
                      Refusal{"LengthsOfOneSide", [](auto& g) { band(g, 2).lengths_q.reset(); },
                              "only one of the two lengths", R"({"node": 2})"},
                      Refusal{"OtherHeads", [](auto& g) { tensor(g, "v").dims[1] = 1; },
                              "do not give", R"({"node": 4})"},
                      Refusal{"OtherDepth", [](auto& g) { tensor(g, "k").dims[3] = 16; },
                              "do not give", R"({"node": 4})"},
                      Refusal{"RealTable",
                              [](auto& g) { tensor(g, "page_table").dtype = DType::f32; },
                              "is not a page table", R"({"node": 4})"},
                      Refusal{"FlatStatistics", [](auto& g) { tensor(g, "lse").dims[2] = 1; },
                              "does not have one value per row", R"({"node": 4})"},
                      Refusal{"SinkOfBatches", [](auto& g) { tensor(g, "sinks").dims[0] = 2; },
                              "does not have one sink per head", R"({"node": 4})"},
                      Refusal{"NoDropout", [](auto& g) { sdpa(g).dropout = 0; },
                              "has a seed without dropout", R"({"node": 4})"},
                      Refusal{"AllDropped", [](auto& g) { sdpa(g).dropout = 1; },
                              "has dropout probability 1", R"({"node": 4})"},
                      Refusal{"ShortSeed", [](auto& g) { tensor(g, "seed").dtype = DType::i32; },
                              "is not a single i64", R"({"node": 4})"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Validate, ABandMaskStandsBesideAttentionAsOneNode) {
  BackendGraph graph = testing::unified_graph();
  graph.nodes.pop_back();
  EXPECT_THAT(validate(graph).error().message, HasSubstr("reads %"));
}

}  // namespace
}  // namespace attn::graph
