// What lowering does not emit, emitted: graphs that differ from lowered ones in one operation, and
// what cuDNN 9.19.0 says to them. A change here is a reason to look at docs/cudnn.md again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler/driver/driver.h"
#include "runtime/graph/operands.h"
#include "runtime/targets/targets.h"
#include "tests/support/crash_patterns.h"

namespace attn::driver {
namespace {

using graph::BackendGraph;
using graph::Pointwise;
using graph::PointwiseMode;
using graph::Tensor;
using graph::Uid;

constexpr std::int64_t kVersion = 91900;

Pointwise& operation(BackendGraph& graph, PointwiseMode mode) {
  for (graph::Node& node : graph.nodes) {
    auto* pointwise = std::get_if<Pointwise>(&node);
    if (pointwise != nullptr && pointwise->mode == mode) return *pointwise;
  }
  throw std::logic_error("the lowered graph has no such operation");
}

Tensor& tensor(BackendGraph& graph, std::string_view name) {
  for (Tensor& each : graph.tensors) {
    if (each.name == name) return each;
  }
  throw std::logic_error("the lowered graph has no such tensor");
}

struct BadGraph {
  const char* name;
  const char* clauses;
  std::function<void(BackendGraph&)> spoil;
  std::string verdict;  // an error's code, "compiles", or the signal that cuDNN dies of
};

void PrintTo(const BadGraph& bad, std::ostream* stream) { *stream << bad.name; }

constexpr const char* kLogic = "score where(score > 0.5 && score < 2, score, 0.1 * score);";
constexpr const char* kVector =
    "tensor t: f32[Skv]; score where(score > 0, score, 0.5) + t[kv_idx];";
constexpr const char* kMask = "tensor t: i32[Skv]; mask kv_idx < t[kv_idx];";
constexpr const char* kRowsAndLengths = "mask kv_idx < 3 || q_idx < 2; lengths kv;";
constexpr const char* kIntegers =
    "tensor t: i32[Skv]; score where(kv_idx < t[kv_idx], score, 0.5);";

void swap_inputs(Pointwise& node) { std::swap(node.x, *node.b); }

// Makes the tensor the condition of the first select.
void select_by(BackendGraph& graph, DType dtype) {
  tensor(graph, "t").dtype = dtype;
  operation(graph, PointwiseMode::binary_select).t = tensor(graph, "t").uid;
}

std::vector<BadGraph> bad_graphs() {
  return {
      {"AndInBoolean", kLogic,
       [](auto& g) { operation(g, PointwiseMode::logical_and).compute = DType::boolean; },
       "unsupported"},
      {"AndInInteger", kLogic,
       [](auto& g) { operation(g, PointwiseMode::logical_and).compute = DType::i32; },
       "unsupported"},
      {"RealsComparedInBoolean", kLogic,
       [](auto& g) { operation(g, PointwiseMode::cmp_gt).compute = DType::boolean; },
       "unsupported"},
      {"TensorFirst", kVector, [](auto& g) { swap_inputs(operation(g, PointwiseMode::add)); },
       "compiles"},
      {"ScalarFirstInASelect", kVector,
       [](auto& g) { swap_inputs(operation(g, PointwiseMode::binary_select)); }, "unsupported"},
      {"ScalarFirstInABand", "mask q_idx >= kv_idx;",
       [](auto& g) { swap_inputs(operation(g, PointwiseMode::binary_select)); }, "SIGSEGV"},
      {"BooleanTensorInASelect", kIntegers, [](auto& g) { select_by(g, DType::boolean); },
       "unsupported"},
      {"BooleanTensorAsMask", kMask, [](auto& g) { select_by(g, DType::boolean); }, "unsupported"},
      {"BytesCompared", kIntegers, [](auto& g) { tensor(g, "t").dtype = DType::u8; },
       "unsupported"},
      {"BytesAsMask", kMask, [](auto& g) { select_by(g, DType::u8); }, "unsupported"},
      {"RowsComparedAsInThePaddingMask", kRowsAndLengths,
       [](auto& g) { operation(g, PointwiseMode::cmp_le).mode = PointwiseMode::cmp_lt; },
       "SIGSEGV"},
      // Refused by runtime/cudnn/known_bad.def; cuDNN compiles it, and hides nothing.
      {"RowsComparedAsInThePaddingMaskWithoutLengths", "mask kv_idx >= 30 && q_idx < 100;",
       [](auto& g) { operation(g, PointwiseMode::cmp_le).mode = PointwiseMode::cmp_lt; },
       "unsupported"},
      {"VariesWithTheBatch", "tensor t: f32[B]; score score * t[b];",
       [](auto& g) { tensor(g, "t").dims[2] = 1; }, "compiles"},
      {"ColumnsThatAreNotAdjacent", "tensor t: f32[Sq, Skv]; score score + t[q_raw, kv_idx];",
       [](auto& g) {
         tensor(g, "t").strides = {128 * 192, 128 * 192, 1, 128};
       },
       "compiles"},
  };
}

BackendGraph lowered(const char* clauses) {
  const support::Source source(
      "bad.attn", "attention bad {\n  dims B = 2, Hq = 4, Hkv = 2, Sq = 128, Skv = 192, D = 64;\n" +
                      std::string(clauses) + "\n}\n");
  diag::Sink sink(source);
  const auto attention = front_end(source, {}, sink);
  if (!attention) throw std::logic_error(diag::to_text(sink));
  const plan::Program program = lower(*attention, "cudnn").value();
  return plan::steps_of<plan::CudnnStep>(program).at(0)->graph;
}

class BadGraphs : public ::testing::TestWithParam<BadGraph> {
 protected:
  static std::string verdict(const BackendGraph& graph) {
    worker::Options options;
    options.command = {ATTN_WORKER_PROGRAM, "worker"};
    options.report_folder = ::testing::TempDir();
    const auto compiled =
        worker::compile(graph, targets::find_target("h200").value().device_json, options);
    if (compiled.ok()) return "compiles";
    const Error& error = compiled.error();
    if (error.code == ErrorCode::worker) {
      const auto payload = nlohmann::json::parse(error.payload);
      std::filesystem::remove(payload.at("repro").get<std::string>());
      return payload.at("signal");
    }
    return std::string(to_string(error.code));
  }
};

TEST_P(BadGraphs, AreWhatTheyWere) {
  const BadGraph& bad = GetParam();
  worker::Options options;
  options.command = {ATTN_WORKER_PROGRAM, "worker"};
  const auto version = worker::cudnn_version(options);
  ASSERT_TRUE(version.ok()) << version.error().to_text();
  if (*version != kVersion) GTEST_SKIP() << "these verdicts are of cuDNN 9.19.0";
  BackendGraph graph = lowered(bad.clauses);
  ASSERT_EQ(verdict(graph), "compiles");
  ASSERT_EQ(testing::crash_pattern(graph), "");
  bad.spoil(graph);
  EXPECT_EQ(verdict(graph), bad.verdict);
  EXPECT_NE(testing::crash_pattern(graph), "");
}

INSTANTIATE_TEST_SUITE_P(CuDnn, BadGraphs, ::testing::ValuesIn(bad_graphs()),
                         [](const auto& bad) { return bad.param.name; });

// The tensors that a plan's kernels are given.
std::set<Uid> given(const std::string& cudnn_plan) {
  std::set<Uid> uids;
  const auto json = nlohmann::json::parse(cudnn_plan);
  for (const auto& kernel : json.at("engine").at("payload").at("kernels")) {
    for (const auto& parameter : kernel.at("kernelParams").at("offsets")) {
      if (parameter.contains("uid")) uids.insert(parameter["uid"].get<Uid>());
    }
  }
  return uids;
}

// Rows compared as in the padding mask, but in other places: cuDNN does not take these for it
// (Feature::like_padding), so its kernels need the bounds.
TEST(LikePadding, BoundsAreReadInOtherPlaces) {
  std::vector<BackendGraph> graphs;
  for (const char* clauses : {"mask q_idx < 100 && kv_idx >= 30 && q_idx + kv_idx < 150;",
                              "score 2 * score; mask q_idx < 100 && kv_idx >= 30;",
                              "score where(q_idx < 100 && kv_idx >= 30, score, 2 * score);",
                              "score where(q_idx < 100, score, 2 * score); mask kv_idx >= 30;"}) {
    graphs.push_back(lowered(clauses));
    operation(graphs.back(), PointwiseMode::cmp_le).mode = PointwiseMode::cmp_lt;
  }
  worker::Options options;
  options.command = {ATTN_WORKER_PROGRAM, "worker"};
  const auto compiled =
      worker::compile(graphs, targets::find_target("h200").value().device_json, options);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    const std::set<Uid> uids = given((*compiled)[i].step.cudnn_plan);
    for (const graph::Node& node : graphs[i].nodes) {
      const auto* comparison = std::get_if<Pointwise>(&node);
      if (comparison == nullptr || !graph::is_comparison(comparison->mode)) continue;
      EXPECT_TRUE(uids.contains(*comparison->b)) << i << ": %" << *comparison->b;
    }
  }
}

}  // namespace
}  // namespace attn::driver
