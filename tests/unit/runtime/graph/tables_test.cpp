#include <gtest/gtest.h>

#include <set>

#include "runtime/graph/backend_graph.h"
#include "runtime/graph/operands.h"
#include "tests/unit/runtime/graph/sample_graphs.h"

namespace attn::graph {
namespace {

TEST(Tables, EveryPointwiseModeReadsBackAndSaysItsInputs) {
  std::set<std::string_view> names;
  const auto check = [&names](PointwiseMode mode, std::string_view name, int inputs) {
    EXPECT_EQ(to_string(mode), name);
    EXPECT_EQ(parse_pointwise_mode(name), mode);
    EXPECT_EQ(input_count(mode), inputs);
    EXPECT_TRUE(names.insert(name).second);
  };
#define ATTN_POINTWISE(name, cudnn_mode, inputs) check(PointwiseMode::name, #name, inputs);
#include "runtime/graph/pointwise.def"
#undef ATTN_POINTWISE
  EXPECT_EQ(parse_pointwise_mode("logical_not"), std::nullopt);  // silently wrong, see the .def
}

TEST(Tables, EveryReduceOpAndStorageReadsBack) {
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::add}) {
    EXPECT_EQ(parse_reduce_op(to_string(op)), op);
  }
  for (const Storage storage : {Storage::virtual_value, Storage::device, Storage::host_scalar}) {
    EXPECT_EQ(parse_storage(to_string(storage)), storage);
  }
  EXPECT_EQ(parse_reduce_op("mul"), std::nullopt);
  EXPECT_EQ(parse_storage(""), std::nullopt);
}

TEST(Tables, FindsATensorByUidInAnyOrder) {
  BackendGraph graph;
  graph.tensors.resize(2);
  graph.tensors[0].uid = 7;
  graph.tensors[1].uid = -3;
  EXPECT_EQ(graph.find(-3), &graph.tensors[1]);
  EXPECT_EQ(graph.find(0), nullptr);
}

TEST(Tables, OperandsComeInTheOrderOfTheNode) {
  const Node select = Pointwise{PointwiseMode::binary_select, DType::f32, 1, 2, 3, 4, {}, {9, 8}};
  EXPECT_EQ(inputs_of(select), (std::vector<Uid>{1, 2, 3}));
  EXPECT_EQ(output_of(select), 4);
  EXPECT_EQ(mnemonic_of(select), "binary_select");
  EXPECT_EQ(position_of(select).line, 9U);
  EXPECT_EQ(mnemonic_of(Reduction{}), "reduce_max");
  EXPECT_EQ(inputs_of(Matmul{5, 6, 7, DType::f32, {}}), (std::vector<Uid>{5, 6}));
}

TEST(Tables, InputsThatMayBeAbsentHaveNames) {
  SdpaForward sdpa;
  EXPECT_EQ(inputs_of(sdpa), (std::vector<Uid>{0, 0, 0}));
  EXPECT_EQ(outputs_of(sdpa), (std::vector<Uid>{0}));
  std::vector<std::string> names = {"modified", "sink"};
  sdpa.modified = 10, sdpa.sink = 11, sdpa.stats = 9;
#define ATTN_SDPA_INPUT(name, attribute)           \
  sdpa.name = static_cast<Uid>(10 + names.size()); \
  names.emplace_back(#name);
#include "runtime/graph/sdpa_inputs.def"
#undef ATTN_SDPA_INPUT
  const auto named = named_inputs_of(sdpa);
  ASSERT_EQ(named.size(), names.size());
  for (std::size_t i = 0; i < named.size(); ++i) {
    EXPECT_EQ(named[i].name, names[i]);
    EXPECT_EQ(named[i].uid, static_cast<Uid>(10 + i));
  }
  EXPECT_EQ(outputs_of(sdpa), (std::vector<Uid>{0, 9}));
  EXPECT_TRUE(named_inputs_of(Node(Reduction{})).empty());
}

TEST(Tables, WhatIsWritten) {
  const BackendGraph graph = testing::unified_graph();
  const SdpaForward& node = *sdpa_of(graph);
  EXPECT_TRUE(is_written(graph, node.o));
  EXPECT_TRUE(is_written(graph, *node.stats));
  EXPECT_TRUE(is_written(graph, *node.modified));
  EXPECT_FALSE(is_written(graph, *node.score));
  EXPECT_FALSE(is_written(graph, node.q));
  EXPECT_EQ(sdpa_of(testing::sample_graph()), nullptr);
}

TEST(Tables, InputsAreReplacedWhereverTheyAre) {
  Node select = Pointwise{PointwiseMode::binary_select, DType::f32, 1, 2, 1, 1, {}, {}};
  replace_inputs(select, 1, 9);
  EXPECT_EQ(inputs_of(select), (std::vector<Uid>{9, 2, 9}));
  EXPECT_EQ(output_of(select), 1) << "the output is no input";
  Node matmul = Matmul{5, 6, 7, DType::f32, {}};
  replace_inputs(matmul, 6, 8);
  EXPECT_EQ(inputs_of(matmul), (std::vector<Uid>{5, 8}));
  Node reduction = Reduction{ReduceOp::max, DType::f32, 1, 2, {}};
  replace_inputs(reduction, 3, 4);
  EXPECT_EQ(inputs_of(reduction), (std::vector<Uid>{1}));
}

}  // namespace
}  // namespace attn::graph
