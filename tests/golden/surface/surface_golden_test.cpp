// Support of every spec of tests/gpu/surface, and of the backward of every shipped spec, on one
// target of each kind, found without a GPU: the engine that serves it, or the reason of the
// refusal. (cli.offline builds the forward of every shipped spec for every target.) The expected
// results are in tests/golden/surface. And what plans of cuDNN's derive, compiled for every target.
//
// For one target plans are built, where cuDNN may refuse to build what it offers: those of specs
// that have a kind of operation, product, type or head size that none before has; in the night, all
// of tests/gpu/surface, and backwards that have an operation on operands that none before has.
// Heuristics alone, which are much faster, judge the others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "compiler/driver/support.h"
#include "compiler/nvrtc/nvrtc.h"
#include "runtime/targets/targets.h"
#include "tests/golden/lowering/specs.h"
#include "tests/support/combinations.h"
#include "tests/support/golden.h"

namespace attn::testing {
namespace {

std::string verdict(const driver::Verdict& judged) {
  if (judged.error) {
    return fmt::format("{}: {}", to_string(judged.error->code), driver::reason_of(*judged.error));
  }
  std::string text = judged.engine < 0 ? "no cuDNN step" : fmt::format("engine {}", judged.engine);
  if (judged.steps > 1) text += fmt::format(", {} steps", judged.steps);
  return text;
}

// Which plans are built; heuristics judge the others.
enum class Built { none, new_kinds, new_operands, all };

// What cuDNN may fail to build a plan for.
std::set<std::string> traits_of(const graph::BackendGraph& graph, Built built) {
  std::set<std::string> traits;
  if (built == Built::new_operands) traits = combinations(graph);
  for (const graph::Node& node : graph.nodes) {
    traits.insert(fmt::format("node {}", node.index()));
    if (const auto* product = std::get_if<graph::Matmul>(&node)) {
      traits.insert(fmt::format("product {}{}{}", product->m ? "m" : "", product->n ? "n" : "",
                                product->k ? "k" : ""));
    }
  }
  for (const graph::Tensor& tensor : graph.tensors) {
    if (tensor.name != "q" && tensor.name != "v") continue;
    traits.insert(fmt::format("{} {} {}{}", tensor.name, to_string(tensor.dtype), tensor.dims[3],
                              tensor.ragged ? " ragged" : ""));
  }
  return traits;
}

// Whether a spec has a trait that is not in `known`, where its traits are added.
bool has_new_traits(const std::filesystem::path& spec, plan::Direction direction, Built built,
                    std::set<std::string>& known) {
  const Result<plan::Program> program = try_lower(spec, "cudnn", direction);
  if (!program.ok()) return false;
  const std::size_t before = known.size();
  for (const plan::Step& step : program->steps) {
    const auto* cudnn = std::get_if<plan::CudnnStep>(&step);
    if (cudnn != nullptr) known.merge(traits_of(cudnn->graph, built));
  }
  return known.size() > before;
}

// A line for each spec of a folder. At least `least` plans are built.
std::string table_of(const std::string& folder, const std::string& target,
                     plan::Direction direction, Built built, int least) {
  driver::CompileOptions options;
  options.target = targets::find_target(target).value();
  options.worker.command = {ATTN_WORKER_PROGRAM, "worker"};
  options.direction = direction;
  options.lowering = "cudnn";
  std::set<std::string> known;
  int count = 0;
  std::string table;
  for (const auto& path : spec_files(folder)) {
    const bool builds = built == Built::all ||
                        (built != Built::none && has_new_traits(path, direction, built, known));
    count += builds;
    const auto tier = builds ? driver::Tier::build : driver::Tier::heuristics;
    const support::Source source = support::Source::read(path.string()).value();
    diag::Sink sink(source);
    const auto attention = driver::front_end(source, {}, sink);
    table += fmt::format("{:<30} {}\n", path.stem().string(),
                         attention ? verdict(driver::judge(*attention, source, {}, options, tier))
                                   : diag::to_text(sink));
  }
  EXPECT_GE(count, least);
  return table;
}

// Builds may take another engine than heuristics, so they have a golden file of their own.
void expect_forwards(const std::string& target, Built built, int least) {
  expect_golden(fmt::format("tests/golden/surface/{}{}.expected",
                            built == Built::all ? "built_" : "", target),
                table_of("tests/gpu/surface", target, plan::Direction::forward, built, least));
}
void expect_backwards(const std::string& target, Built built, int least) {
  expect_golden(fmt::format("tests/golden/surface/backward_{}.expected", target),
                table_of("specs", target, plan::Direction::backward, built, least));
}

class SurfaceGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(SurfaceGolden, EverySpecIsServedAsBefore) {
  const bool builds = GetParam() == "h200";
  expect_forwards(GetParam(), builds ? Built::new_kinds : Built::none, builds ? 10 : 0);
}

TEST_P(SurfaceGolden, EveryBackwardIsServedAsBefore) {
  const bool builds = GetParam() == "h200";
  expect_backwards(GetParam(), builds ? Built::new_kinds : Built::none, builds ? 10 : 0);
}

TEST(NightlySurfaceGolden, EverySpecIsBuilt) { expect_forwards("h200", Built::all, 40); }

TEST(NightlySurfaceGolden, EveryBackwardIsServedAsBefore) {
  expect_backwards("h200", Built::new_operands, 40);
}

// One GPU of each kind: others have the engines of one of these, and differ in numbers.
std::vector<std::string> targets_that_differ() {
  return {"h200", "a100", "l40s", "b200", "rtx5090"};
}

// The kernels that cuDNN's plans of the specs of a folder have, of both directions.
std::set<std::string> derived_kernels(const std::string& folder) {
  std::set<std::string> sources;
  for (const auto& path : spec_files(folder)) {
    for (const auto direction : {plan::Direction::forward, plan::Direction::backward}) {
      const Result<plan::Program> program = try_lower(path, "cudnn", direction);
      if (!program.ok()) continue;
      for (const auto& [source, general] : plan::sources_of(*program)) sources.insert(*source);
    }
  }
  return sources;
}

TEST(DerivedKernels, AreCompiledForEveryTarget) {
  std::set<std::int64_t> sms;
  for (const std::string& name : targets::target_names()) {
    sms.insert(targets::find_target(name).value().sm);
  }
  const std::set<std::string> sources = derived_kernels("tests/gpu/derived");
  EXPECT_GE(sources.size(), 16U);
  for (const std::string& source : sources) {
    for (const std::int64_t sm : sms) {
      const Result<std::string> image = nvrtc::compile_kernel(source, sm, "");
      ASSERT_TRUE(image.ok()) << image.error().to_text() << source;
      EXPECT_GT(image->size(), 1000U) << "sm_" << sm << '\n' << source;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, SurfaceGolden, ::testing::ValuesIn(targets_that_differ()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace attn::testing
