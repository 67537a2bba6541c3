// Support of every spec of tests/gpu/surface, and of the backward of every shipped spec, on every
// target, found without a GPU: the engine that serves it, or the reason of the refusal. The
// expected results are in tests/golden/surface.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/driver/support.h"
#include "runtime/targets/targets.h"
#include "tests/golden/lowering/specs.h"
#include "tests/support/golden.h"

namespace attn::testing {
namespace {

std::string verdict(const Result<driver::Compiled>& compiled) {
  if (!compiled.ok()) {
    return fmt::format("{}: {}", to_string(compiled.error().code), compiled.error().message);
  }
  const plan::Plan& plan = compiled->plan;
  std::string text;
  for (const plan::CompiledStep& step : plan.compiled) {
    text += fmt::format("{}engine {} of {}", text.empty() ? "" : ", ", step.engine, step.heuristic);
  }
  if (text.empty()) text = "no cuDNN step";
  if (!plan.kernels.empty()) text += fmt::format(", kernels {}", plan.kernels.size());
  return text;
}

std::string verdict(const driver::Verdict& judged) {
  if (judged.error) {
    return fmt::format("{}: {}", to_string(judged.error->code), driver::reason_of(*judged.error));
  }
  return fmt::format("engine {}", judged.engine);
}

// A line for each spec of a folder, with the result of `say` for its attention.
template <typename Say>
std::string table_of(const std::string& folder, const Say& say) {
  std::string table;
  for (const auto& path : spec_files(folder)) {
    const support::Source source = support::Source::read(path.string()).value();
    diag::Sink sink(source);
    const auto attention = driver::front_end(source, {}, sink);
    table += fmt::format("{:<30} {}\n", path.stem().string(),
                         attention ? say(*attention, source) : diag::to_text(sink));
  }
  return table;
}

driver::CompileOptions options_for(const std::string& target) {
  driver::CompileOptions options;
  options.target = targets::find_target(target).value();
  options.worker.command = {ATTN_WORKER_PROGRAM, "worker"};
  return options;
}

class SurfaceGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(SurfaceGolden, EverySpecIsServedAsBefore) {
  const driver::CompileOptions options = options_for(GetParam());
  expect_golden(fmt::format("tests/golden/surface/{}.expected", GetParam()),
                table_of("tests/gpu/surface", [&](const auto& attention, const auto& source) {
                  return verdict(driver::compile(attention, source, {}, options));
                }));
}

// Builds for one target; only queries heuristics for the others, which is much faster.
TEST_P(SurfaceGolden, EveryBackwardIsServedAsBefore) {
  driver::CompileOptions options = options_for(GetParam());
  options.direction = plan::Direction::backward;
  const auto tier = GetParam() == "h200" ? driver::Tier::build : driver::Tier::heuristics;
  expect_golden(fmt::format("tests/golden/surface/backward_{}.expected", GetParam()),
                table_of("specs", [&](const auto& attention, const auto& source) {
                  return verdict(driver::judge(attention, source, {}, options, tier));
                }));
}

// All targets but the H100, which has the engines of an H200 and differs only in its memory.
std::vector<std::string> targets_that_differ() {
  std::vector<std::string> names = targets::target_names();
  std::erase(names, "h100");
  return names;
}

INSTANTIATE_TEST_SUITE_P(Targets, SurfaceGolden, ::testing::ValuesIn(targets_that_differ()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace attn::testing
