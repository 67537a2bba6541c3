#include "runtime/cudnn/compile.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "runtime/cudnn/descriptor.h"
#include "runtime/cudnn/newer.h"
#include "runtime/graph/operands.h"
#include "tests/unit/runtime/cudnn/fake_cudnn.h"
#include "tests/unit/runtime/graph/sample_graphs.h"

namespace attn::cudnn {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeConfig;
using testing::FakeCudnn;
using testing::FakeOffer;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kShape =
    "{\"engineId\":2,\"smVersion\":900,\"knobChoices\":{\"CUDNN_KNOB_TYPE_KERNEL_CFG\":7}}\n"
    "Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: head dim 100\n"
    "Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: finalize_internal()\n\n";
constexpr const char* kNoDriver =
    "{\"engineId\":2,\"smVersion\":900,\"knobChoices\":{}}\n"
    "Warning: CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING; Reason: no libcuda\n";

// y = exp(x), as one node.
graph::BackendGraph tiny_graph() {
  graph::BackendGraph graph;
  const std::vector<std::int64_t> ones = {1, 1, 1, 1};
  graph.tensors = {{1, "x", DType::f32, ones, ones, graph::Storage::device, 16},
                   {2, "y", DType::f32, ones, ones, graph::Storage::device, 16}};
  graph::Pointwise exp;
  exp.mode = graph::PointwiseMode::exp;
  exp.x = 1;
  exp.y = 2;
  graph.nodes.emplace_back(exp);
  return graph;
}

class CompileGraph : public ::testing::Test {
 protected:
  FakeConfig failing(std::int64_t engine, cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED) {
    return {engine, status, "Warning: " + std::string(kReason)};
  }
  Result<plan::CompiledStep> compile() {
    return compile_graph(fake_.api(), tiny_graph(), "{}",
                         [this](const Progress& step) { stages_.push_back(step.stage); });
  }
  void TearDown() override { EXPECT_EQ(fake_.live, 0); }

  static constexpr const char* kReason =
      "CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN; Reason: no such pattern";
  FakeCudnn fake_;
  std::vector<std::string> stages_;
};

template <typename Value>
std::string bytes_of(Value value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

TEST_F(CompileGraph, AttentionAsOneNodeHasItsScoreInAGraphOfItsOwn) {
  fake_.offers[CUDNN_HEUR_MODE_A].configs = {{7, {}, {}}};
  const graph::BackendGraph graph = graph::testing::unified_graph();
  const auto step = compile_graph(fake_.api(), graph, "{}", [](const Progress&) {});
  ASSERT_TRUE(step.ok()) << step.error().to_text();
  const graph::SdpaForward& node = *graph::sdpa_of(graph);
  EXPECT_EQ(fake_.last_set[kSdpaScoreIn.info.name], bytes_of(*node.score));
  EXPECT_EQ(fake_.last_set[kSdpaScoreOut.info.name], bytes_of(*node.modified));
  EXPECT_EQ(fake_.last_set[kSdpaDropout.info.name], bytes_of(0.1F));
  EXPECT_EQ(fake_.last_set[kBandMaskComparison.info.name], bytes_of(CUDNN_POINTWISE_CMP_GT));
  for (const auto& attribute : {kSdpaScoreGraph, kSdpaTableK, kSdpaSeed, kSoftmaxSink,
                                kSoftmaxStats, kBandMaskLengthsQ, kSdpaSoftmax}) {
    EXPECT_TRUE(fake_.last_set.contains(attribute.info.name)) << attribute.info.text;
  }
  EXPECT_FALSE(fake_.last_set.contains(kSdpaStats.info.name)) << "the softmax has them";
}

TEST_F(CompileGraph, AKnownFaultIsRefusedBeforeCudnnIsAsked) {
  graph::BackendGraph graph = graph::testing::unified_graph();
  graph.tensors[2].dims[2] = 8;  // pages of v
  graph.nodes.back() = [&graph] {
    graph::SdpaForward node = *graph::sdpa_of(graph);
    node.pos = {4, 2};
    return node;
  }();
  const auto step = compile_graph(fake_.api(), graph, "{}", [](const Progress&) {});
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().code, ErrorCode::unsupported);
  EXPECT_THAT(step.error().message, HasSubstr("pages of k and v differ"));
  EXPECT_THAT(step.error().notes, Contains("give both the same `page`"));
  const Json payload = Json::parse(step.error().payload);
  EXPECT_EQ(payload["row"], "pages_of_two_sizes");
  EXPECT_EQ(payload["line"], 4);
  EXPECT_EQ(fake_.planned_engines.size(), 0U);
}

TEST(Newer, SinceWhen) {
  EXPECT_EQ(since("OPERATION_SOFTMAX_XDESC"), 92000);
  EXPECT_EQ(since("OPERATION_DIAGONAL_BAND_MASK"), 92000);
  EXPECT_EQ(since("OPERATION_SDPA_FWD_SUBGRAPH"), 92100);
  EXPECT_EQ(since("TENSOR_DIMENSIONS"), 0);
}

TEST_F(CompileGraph, FirstConfigThatBecomesAPlanWins) {
  fake_.offers[CUDNN_HEUR_MODE_A].configs = {failing(4), {7, {}, {}}, {8, {}, {}}};
  const auto step = compile();
  ASSERT_TRUE(step.ok()) << step.error().to_text();
  EXPECT_EQ(step->heuristic, "A");
  EXPECT_EQ(step->engine, 7);
  EXPECT_EQ(step->workspace_bytes, 4096);
  EXPECT_EQ(step->cudnn_plan, "{\"plan\":1}");
  EXPECT_THAT(fake_.planned_engines, ElementsAre(4, 7));
}

TEST_F(CompileGraph, FallbackComesAfterAllOfA) {
  fake_.offers[CUDNN_HEUR_MODE_A].configs = {failing(4), failing(5)};
  fake_.offers[CUDNN_HEUR_MODE_FALLBACK].configs = {{9, {}, {}}};
  const auto step = compile();
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->heuristic, "FALLBACK");
  EXPECT_THAT(fake_.planned_engines, ElementsAre(4, 5, 9));
  EXPECT_THAT(stages_, ElementsAre("device properties", "tensor", "tensor", "operation",
                                   "operation graph", "heuristics A", "plan (engine 4)",
                                   "plan (engine 5)", "heuristics FALLBACK", "plan (engine 9)"));
}

TEST_F(CompileGraph, NoConfigOffered) {
  fake_.offers[CUDNN_HEUR_MODE_A].words = kShape;
  const auto step = compile();
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().code, ErrorCode::unsupported);
  EXPECT_EQ(step.error().message, "cuDNN offers no engine config for this graph");
  EXPECT_THAT(step.error().notes, ElementsAre("engine 2: NOT_SUPPORTED_SHAPE: head dim 100"));
  EXPECT_EQ(Json::parse(step.error().payload), Json::parse(R"({
    "stage": "heuristics",
    "modes": [{"mode": "A", "configs": 0, "status": "SUCCESS"},
              {"mode": "FALLBACK", "configs": 0, "status": "SUCCESS"}],
    "configs": [{"mode": "A", "offered": false, "engine": 2, "knobs": {"24": 7},
                 "status": "NOT_SUPPORTED_SHAPE", "reason": "head dim 100"}],
    "node": -1})"));
}

TEST_F(CompileGraph, EveryConfigFailed) {
  fake_.offers[CUDNN_HEUR_MODE_A].configs = {failing(4), failing(5)};
  const auto step = compile();
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().code, ErrorCode::unsupported);
  EXPECT_EQ(step.error().message,
            "cuDNN could not build a plan for this graph: 2 engine configs failed");
  EXPECT_THAT(step.error().notes,
              ElementsAre("engines 4, 5: NOT_SUPPORTED_GRAPH_PATTERN: no such pattern"));
  const Json payload = Json::parse(step.error().payload);
  EXPECT_EQ(payload.at("stage"), "plan");
  EXPECT_EQ(payload.at("modes").at(0).at("configs"), 2);
  EXPECT_EQ(payload.at("configs").size(), 2U);
  EXPECT_EQ(payload.at("configs").at(1).at("offered"), true);
}

TEST_F(CompileGraph, OneRealFailureIsNoRefusal) {
  fake_.offers[CUDNN_HEUR_MODE_A].configs = {failing(4),
                                             {5, CUDNN_STATUS_EXECUTION_FAILED, "something broke"}};
  const auto step = compile();
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().code, ErrorCode::cudnn);
  EXPECT_THAT(step.error().notes, Contains("engine 5: EXECUTION_FAILED: something broke"));
}

TEST_F(CompileGraph, MissingDriverIsNoRefusal) {
  fake_.offers[CUDNN_HEUR_MODE_A].words = kNoDriver;
  const auto step = compile();
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().code, ErrorCode::cudnn);
  EXPECT_THAT(step.error().notes, Contains(HasSubstr("no libcuda")));
}

TEST_F(CompileGraph, AnEngineWithoutAKnobIsARefusalWhateverItsStatus) {
  const std::string choice = "{\"engineId\":4,\"smVersion\":1200,\"knobChoices\":{}}\n";
  const std::string internal = "Warning: CUDNN_STATUS_INTERNAL_ERROR_UNEXPECTED_VALUE; Reason: ";
  FakeOffer& offer = fake_.offers[CUDNN_HEUR_MODE_A];
  offer.words = choice + internal + "No knob was found for this mode\n";
  EXPECT_EQ(compile().error().code, ErrorCode::unsupported);
  offer.words = choice + internal + "a map is empty\n";
  EXPECT_EQ(compile().error().code, ErrorCode::cudnn);
}

TEST_F(CompileGraph, HeuristicThatFailsIsToldAndTheNextOneAsked) {
  fake_.offers[CUDNN_HEUR_MODE_A].status = CUDNN_STATUS_BAD_PARAM;
  fake_.offers[CUDNN_HEUR_MODE_FALLBACK].configs = {failing(3)};
  const auto step = compile();
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().code, ErrorCode::cudnn);
  EXPECT_THAT(step.error().notes, Contains(HasSubstr("heuristics A: BAD_PARAM")));
  EXPECT_EQ(Json::parse(step.error().payload).at("modes").at(0).at("status"), "BAD_PARAM");
}

TEST_F(CompileGraph, SurplusConfigsDoNotStayAlive) {
  fake_.offers[CUDNN_HEUR_MODE_A] = {{{7, {}, {}}}, 5, "", CUDNN_STATUS_SUCCESS};
  const std::int64_t before = Descriptor::live_count();
  EXPECT_TRUE(compile().ok());
  EXPECT_EQ(Descriptor::live_count(), before);
}

TEST_F(CompileGraph, RefusedOperationNamesItsNode) {
  fake_.fail_finalize[CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR] = CUDNN_STATUS_BAD_PARAM;
  const auto step = compile();
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().message,
            "operation of node 0 (exp): cuDNN: finalize OPERATION_POINTWISE: BAD_PARAM");
  const Json payload = Json::parse(step.error().payload);
  EXPECT_EQ(payload.at("stage"), "operation");
  EXPECT_EQ(payload.at("node"), 0);
  EXPECT_EQ(payload.at("status"), "BAD_PARAM");
}

TEST_F(CompileGraph, DevicePropertiesAreAtFaultOnlyWhenTheLibrarySaysSo) {
  fake_.fail_finalize[CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR] = CUDNN_STATUS_BAD_PARAM;
  EXPECT_EQ(compile().error().code, ErrorCode::invalid_argument);
  fake_.fail_finalize[CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR] = CUDNN_STATUS_EXECUTION_FAILED;
  EXPECT_EQ(compile().error().code, ErrorCode::cudnn);
}

TEST_F(CompileGraph, DeviceTextKeepsItsTerminatingZero) {
  fake_.offers[CUDNN_HEUR_MODE_A].configs = {{7, {}, {}}};
  ASSERT_TRUE(compile().ok());
  EXPECT_EQ(fake_.last_set[CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION], std::string("{}\0", 3));
}

}  // namespace
}  // namespace attn::cudnn
