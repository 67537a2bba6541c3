#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/graph/backend_graph.h"
#include "tests/unit/runtime/graph/sample_graphs.h"

namespace attn::graph {
namespace {

using ::testing::HasSubstr;

TEST(GraphJson, EveryRandomGraphComesBackWhole) {
  testing::Random random(3);
  for (int round = 0; round < 200; ++round) {
    const BackendGraph graph = testing::random_graph(random);
    const std::string json = to_json(graph);
    const Result<BackendGraph> back = from_json(json);
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_EQ(*back, graph);
    ASSERT_EQ(to_json(*back), json);  // positions too, which equality ignores
  }
}

TEST(GraphJson, AttentionAsOneNodeComesBackWhole) {
  testing::Random random(5);
  for (const BackendGraph& graph :
       {testing::unified_graph(), testing::disguised(testing::unified_graph(), random)}) {
    const Result<BackendGraph> back = from_json(to_json(graph));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, graph);
    EXPECT_EQ(position_of(back->nodes[2]).line, position_of(graph.nodes[2]).line);
  }
}

TEST(GraphJson, KeepsNamesPositionsAndTheWholeRangeOfIntegers) {
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  BackendGraph graph;
  graph.tensors.push_back(
      {kMin, "\xFF\"\n", DType::boolean, {kMax, kMin}, {}, Storage::device, kMax});
  graph.nodes.emplace_back(Reduction{ReduceOp::add, DType::f64, kMin, kMax, {4294967295U, 7}});
  const Result<BackendGraph> back = from_json(to_json(graph));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, graph);
  EXPECT_EQ(position_of(back->nodes[0]).line, 4294967295U);
  EXPECT_EQ(position_of(back->nodes[0]).column, 7U);
}

TEST(GraphJson, AnEmptyGraphIsAnEmptyGraph) {
  EXPECT_EQ(to_json({}), R"({"tensors":[],"nodes":[]})");
  EXPECT_EQ(*from_json(to_json({})), BackendGraph());
}

struct Wrong {
  const char* json;
  const char* message;
};

class GraphJsonErrors : public ::testing::TestWithParam<Wrong> {};

INSTANTIATE_TEST_SUITE_P(
    Texts, GraphJsonErrors,
    ::testing::Values(
        Wrong{"", "invalid JSON: byte 1"}, Wrong{"[]", "$: expected an object"},
        Wrong{"{}", "$: \"tensors\" is missing"},
        Wrong{R"({"tensors":[],"nodes":[],"more":1})", "$: \"more\" is not a known member"},
        Wrong{R"({"tensors":7,"nodes":[]})", "$.tensors: expected an array"},
        Wrong{R"({"tensors":[],"nodes":[{}]})", "$.nodes[0]: \"op\" is missing"},
        Wrong{R"({"tensors":[],"nodes":[{"op":"conv"}]})", "$.nodes[0].op: is not a known name"},
        Wrong{R"({"tensors":[],"nodes":[{"op":"matmul","a":1.0,"b":2,"c":3,"compute":"f32"}]})",
              "$.nodes[0].a: expected an integer"},
        Wrong{R"({"tensors":[],"nodes":[{"op":"matmul","a":9223372036854775808,"b":2,"c":3,)"
              R"("compute":"f32"}]})",
              "$.nodes[0].a: is out of range"},
        Wrong{R"({"tensors":[],"nodes":[{"op":"matmul","a":1,"b":2,"c":3,"compute":"f33"}]})",
              "$.nodes[0].compute: is not a known name"},
        Wrong{R"({"tensors":[],"nodes":[{"op":"matmul","a":1,"b":2,"c":3,"compute":"f32",)"
              R"("pos":[1]}]})",
              "$.nodes[0].pos: expected a line and a column"},
        Wrong{R"({"tensors":[],"nodes":[{"op":"reduction","mode":"mul","compute":"f32","x":1,)"
              R"("y":2}]})",
              "$.nodes[0].mode: is not a known name"},
        Wrong{R"({"tensors":[{"uid":1,"name":{"hex":"f"},"dtype":"f32","dims":[],"strides":[],)"
              R"("storage":"device","alignment":1}],"nodes":[]})",
              "$.tensors[0].name: expected a string"}));

TEST_P(GraphJsonErrors, NameThePlace) {
  const Result<BackendGraph> graph = from_json(GetParam().json);
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(graph.error().message, HasSubstr(GetParam().message));
}

TEST(GraphJson, EveryTruncationIsRefused) {
  const std::string json = to_json(testing::sample_graph());
  for (std::size_t length = 0; length < json.size(); ++length) {
    ASSERT_FALSE(from_json(std::string_view(json).substr(0, length)).ok()) << length;
  }
}

// Drops or duplicates each member of each object.
TEST(GraphJson, EveryMemberIsNeededOrOptionalByDesign) {
  const auto document = nlohmann::json::parse(to_json(testing::sample_graph()));
  for (const char* list : {"tensors", "nodes"}) {
    for (std::size_t i = 0; i < document[list].size(); ++i) {
      for (const auto& [key, value] : document[list][i].items()) {
        auto without = document;
        without[list][i].erase(key);
        const bool optional = key == "pos" || key == "axis" || key == "b" || key == "t";
        const bool matmul = document[list][i].value("op", "") == "matmul";
        EXPECT_EQ(from_json(without.dump()).ok(), optional && !(matmul && key == "b")) << key;
      }
    }
  }
}

}  // namespace
}  // namespace attn::graph
