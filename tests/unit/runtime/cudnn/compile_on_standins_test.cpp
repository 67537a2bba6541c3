// Compiles on the cuDNN stand-in, which checks every attribute: types, failures of every call,
// handling of statuses. Each test must end without live descriptors and contract violations
// (StandinTest).
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/cudnn/api.h"
#include "runtime/cudnn/compile.h"
#include "tests/standin/standins.h"
#include "tests/standin/work.h"
#include "tests/unit/runtime/graph/sample_graphs.h"

namespace attn::cudnn {
namespace {

using Json = nlohmann::json;
using graph::Storage;
using standin::Role;
using ::testing::HasSubstr;

constexpr const char* kDevice = R"({"deviceVer": 900})";

class CompileOnStandins : public standin::StandinTest {
 protected:
  void SetUp() override {
    StandinTest::SetUp();
    auto library = Library::load(standin::folder());
    ASSERT_TRUE(library.ok()) << library.error().to_text();
    library_ = *library;
  }

  Result<plan::CompiledStep> compile(const graph::BackendGraph& graph) const {
    return cudnn::compile(*library_, graph, kDevice, [](const Progress&) {});
  }
  Result<plan::CompiledStep> compile() const { return compile(graph::testing::sample_graph()); }

  static void offer(const char* mode, const Json& offer) {
    standin::cudnn().offer(mode, offer.dump().c_str());
  }
  static Json offer_of(const std::vector<Json>& configs, int surplus = 0) {
    return {{"configs", configs}, {"surplus", surplus}};
  }
  static Json engine_with_knobs() {
    return {{"engine", 5}, {"knobs", Json::parse(R"({"2": 1, "24": 3})")}};
  }
  static Json config(int engine, int status, const std::string& words = "") {
    return {{"engine", engine}, {"status", status}, {"words", words}};
  }
  // Number of calls of each function since the reset, except functions that cannot fail.
  static std::map<std::string, std::int64_t> calls() {
    std::map<std::string, std::int64_t> calls;
    for (const char* function : {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
                                 "cudnnBackendFinalize", "cudnnBackendGetAttribute"}) {
      calls[function] = standin::cudnn().control.calls(function, STANDIN_ANY);
    }
    return calls;
  }

  std::shared_ptr<const Library> library_;
};

// Checks the operands of a graph against the descriptors.
void expect_operands(const graph::BackendGraph& graph, const plan::CompiledStep& step) {
  std::map<graph::Uid, Storage> wanted, found;
  for (const graph::Tensor& tensor : graph.tensors) {
    if (tensor.storage != Storage::virtual_value) wanted[tensor.uid] = tensor.storage;
  }
  const auto plan = standin::parse_plan(step.cudnn_plan);
  ASSERT_TRUE(plan) << step.cudnn_plan;
  for (const standin::Operand& operand : plan->work.operands) {
    const bool scalar = operand.role == Role::scalar;
    found[operand.uid] = scalar ? Storage::host_scalar : Storage::device;
  }
  EXPECT_EQ(found, wanted);
}

TEST_F(CompileOnStandins, EveryAttributeIsOneOfItsDescriptor) {
  using namespace graph::testing;
  std::vector<graph::BackendGraph> graphs = {sample_graph(), controlled_graph(), unified_graph()};
  Random random(1);
  for (int i = 0; i < 50; ++i) graphs.push_back(random_graph(random));
  for (const graph::BackendGraph& graph : graphs) {
    const auto step = compile(graph);
    ASSERT_TRUE(step.ok()) << step.error().to_text();
    expect_operands(graph, *step);
  }
  EXPECT_EQ(standin::cudnn().control.calls("cudnnCreate", STANDIN_ANY), 0) << "no GPU is needed";
}

TEST_F(CompileOnStandins, ScalesOfBlocksFromTheVersionThatHasThem) {
  const graph::BackendGraph graph = graph::testing::block_scaled_graph();
  const auto refused = compile(graph);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("before 9.21"));
  standin::cudnn().set_version(92800);
  const auto step = compile(graph);
  ASSERT_TRUE(step.ok()) << step.error().to_text();
  expect_operands(graph, *step);
}

TEST_F(CompileOnStandins, EveryCallMayFail) {
  offer("A", offer_of({engine_with_knobs()}));
  ASSERT_TRUE(compile().ok());
  for (const auto& [function, count] : calls()) {
    for (std::int64_t nth = 1; nth <= count; ++nth) {
      const StandinRule rule = standin::fail_nth(function.c_str(), static_cast<long>(nth),
                                                 CUDNN_STATUS_INTERNAL_ERROR, "so told");
      standin::cudnn().control.script(&rule);
      SCOPED_TRACE(function + " " + std::to_string(nth));
      const auto step = compile();
      ASSERT_FALSE(step.ok());
      EXPECT_EQ(step.error().code, ErrorCode::cudnn);
      EXPECT_THAT(step.error().to_text(), HasSubstr("so told"));
      ASSERT_EQ(standin::live(), standin::Live());
    }
  }
}

// Whatever a config returns, the next is tried; the result is unsupported only if all are.
TEST_F(CompileOnStandins, WhatTheStatusesOfConfigsBecome) {
  const std::map<int, bool> refusals = {
      {CUDNN_STATUS_NOT_SUPPORTED, true},
      {CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, true},
      {CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, true},
      {CUDNN_STATUS_NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT, true},
      {CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, false},
      {CUDNN_STATUS_BAD_PARAM, false},
      {CUDNN_STATUS_INTERNAL_ERROR, false},
      {CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, false},
      {CUDNN_STATUS_EXECUTION_FAILED, false}};
  for (const auto& [first, first_refuses] : refusals) {
    offer("A", offer_of({config(1, first), config(2, 0)}));
    const auto step = compile();
    ASSERT_TRUE(step.ok());
    EXPECT_EQ(step->engine, 2);
    for (const auto& [second, second_refuses] : refusals) {
      offer("A", offer_of({config(1, first), config(2, second)}));
      const auto failed = compile();
      ASSERT_FALSE(failed.ok());
      const bool refused = first_refuses && second_refuses;
      EXPECT_EQ(failed.error().code, refused ? ErrorCode::unsupported : ErrorCode::cudnn)
          << first << " and " << second;
      EXPECT_EQ(failed.error().message,
                "cuDNN could not build a plan for this graph: 2 engine configs failed");
    }
  }
}

// Reasons of one mode are not reported for the next; configs without a reason are reported too.
TEST_F(CompileOnStandins, EveryAttemptIsToldWithItsReason) {
  offer("A", offer_of({config(4, CUDNN_STATUS_NOT_SUPPORTED,
                              "Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: head dim 100\n"),
                       config(5, CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH)},
                      3));
  offer("FALLBACK", offer_of({config(9, CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN)}));
  const auto step = compile();
  ASSERT_FALSE(step.ok());
  const Json payload = Json::parse(step.error().payload);
  EXPECT_EQ(payload["stage"], "plan");
  EXPECT_EQ(payload["modes"].size(), 2U);
  std::vector<std::string> told;
  for (const Json& config : payload["configs"]) {
    told.push_back(config["mode"].get<std::string>() + ' ' + config["engine"].dump() + ' ' +
                   config["status"].get<std::string>());
  }
  EXPECT_THAT(told,
              ::testing::ElementsAre("A 4 NOT_SUPPORTED_SHAPE", "A 5 NOT_SUPPORTED_ARCH_MISMATCH",
                                     "FALLBACK 9 NOT_SUPPORTED_GRAPH_PATTERN"));
  EXPECT_EQ(payload["configs"][0]["reason"], "head dim 100");
  EXPECT_THAT(payload["configs"][1]["reason"].get<std::string>(),
              ::testing::Not(HasSubstr("head dim")));
}

TEST_F(CompileOnStandins, NoOfferIsToldApartFromOffersThatFail) {
  offer("A", Json::object());
  const auto step = compile();
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().code, ErrorCode::unsupported);
  EXPECT_EQ(step.error().message, "cuDNN offers no engine config for this graph");
  EXPECT_EQ(Json::parse(step.error().payload)["stage"], "heuristics");
  EXPECT_EQ(standin::cudnn().control.calls("cudnnBackendFinalize",
                                           CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
            0);
}

// Announced but unfilled descriptors are not kept while plans are made.
TEST_F(CompileOnStandins, TheSurplusGoesAtOnce) {
  standin::cudnn().control.record(1);
  offer("A", offer_of({config(5, 0)}, 4));
  ASSERT_TRUE(compile().ok());
  const std::string log = standin::log_of(standin::cudnn().control);
  const std::string before_plan = log.substr(0, log.find("CreateDescriptor EXECUTION_PLAN"));
  std::size_t gone = 0;
  for (std::size_t at = 0;
       (at = before_plan.find("DestroyDescriptor ENGINECFG", at)) != std::string::npos; ++at) {
    ++gone;
  }
  EXPECT_EQ(gone, 4U);
}

// A single row whose score contains an index: engine 1 is known to compute it wrongly.
graph::BackendGraph graph_for_another_engine() {
  graph::BackendGraph graph;
  const std::vector<std::int64_t> q = {1, 1, 1, 8}, k = {1, 1, 8, 8}, scores = {1, 1, 1, 8};
  const std::vector<std::int64_t> packed = {8, 8, 8, 1}, square = {64, 64, 8, 1};
  graph.tensors = {{1, "q", DType::f16, q, packed, Storage::device, 16},
                   {2, "k", DType::f16, k, square, Storage::device, 16},
                   {3, "", DType::f32, scores, packed, Storage::virtual_value, 16},
                   {4, "", DType::i32, scores, packed, Storage::virtual_value, 16},
                   {5, "o", DType::f16, scores, packed, Storage::device, 16}};
  graph::Matmul product;
  product.a = 1, product.b = 2, product.c = 3;
  graph::Pointwise index, scaled;
  index.mode = graph::PointwiseMode::gen_index;
  index.x = 3, index.y = 4, index.axis = 3;
  scaled.mode = graph::PointwiseMode::mul;
  scaled.x = 3, scaled.b = 4, scaled.y = 5;
  graph.nodes = {product, index, scaled};
  return graph;
}

TEST_F(CompileOnStandins, WhereTheOfferedEngineIsWrongEveryOtherIsTried) {
  const graph::BackendGraph graph = graph_for_another_engine();
  offer("A", offer_of({config(1, 0)}));
  EXPECT_EQ(compile(graph).error().code, ErrorCode::unsupported);
  standin::cudnn().set_engines(4);
  const StandinRule first_takes_it_not = {"cudnnBackendFinalize",
                                          CUDNN_BACKEND_ENGINE_DESCRIPTOR,
                                          1,
                                          CUDNN_STATUS_NOT_SUPPORTED,
                                          nullptr,
                                          0,
                                          0};
  standin::cudnn().control.script(&first_takes_it_not);
  const auto step = compile(graph);
  ASSERT_TRUE(step.ok()) << step.error().to_text();
  EXPECT_EQ(step->engine, 2);
  EXPECT_EQ(step->heuristic, "NONE");
}

TEST_F(CompileOnStandins, CompilingAgainGivesTheSame) {
  const auto first = compile(), second = compile();
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, *second);
}

}  // namespace
}  // namespace attn::cudnn
