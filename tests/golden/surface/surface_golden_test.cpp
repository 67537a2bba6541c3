// What cuDNN says to every spec of tests/gpu/surface, for every target, without a GPU: the engine
// that serves it, or who refuses it. A change shows as a difference of tests/golden/surface.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/driver/driver.h"
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
  if (text.empty()) text = "no step of cuDNN's";
  if (!plan.kernels.empty()) text += fmt::format(", kernels {}", plan.kernels.size());
  return text;
}

std::string compile(const std::filesystem::path& path, const driver::CompileOptions& options) {
  const auto source = support::Source::read(path.string());
  if (!source.ok()) return source.error().to_text();
  diag::Sink sink(*source);
  const auto attention = driver::front_end(*source, {}, sink);
  if (!attention) return diag::to_text(sink);
  return verdict(driver::compile(*attention, *source, {}, options));
}

class SurfaceGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(SurfaceGolden, EverySpecIsServedAsBefore) {
  const auto target = targets::find_target(GetParam());
  ASSERT_TRUE(target.ok());
  driver::CompileOptions options;
  options.target = *target;
  options.worker.command = {ATTN_WORKER_PROGRAM, "worker"};
  std::string table;
  for (const auto& path : spec_files("tests/gpu/surface")) {
    table += fmt::format("{:<30} {}\n", path.stem().string(), compile(path, options));
  }
  expect_golden(fmt::format("tests/golden/surface/{}.expected", GetParam()), table);
}

INSTANTIATE_TEST_SUITE_P(Targets, SurfaceGolden, ::testing::ValuesIn(targets::target_names()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace attn::testing
