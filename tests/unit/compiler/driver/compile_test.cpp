// Compiles with the cuDNN of this machine in a worker; needs neither a GPU nor a driver.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "compiler/driver/driver.h"
#include "compiler/engines/native/programs.h"
#include "compiler/nvrtc/assembly.h"
#include "compiler/nvrtc/nvrtc.h"
#include "runtime/cache/plan_cache.h"
#include "runtime/targets/targets.h"

namespace attn::driver::compile_tests {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSpec = R"(attention window(w = 32) {
  dims B = 1, Hq = 2, Hkv = 1, Sq = 64, Skv = 96, D = 64;
  mask q_idx >= kv_idx && q_idx - kv_idx < w;
  outputs o, lse;
})";

struct Read {
  support::Source source;
  sema::Bindings bindings;
  ir::Attention attention;

  explicit Read(const char* text = kSpec, sema::Bindings bound = {{"w", "16"}})
      : source("window.attn", text), bindings(std::move(bound)) {
    diag::Sink sink(source);
    attention = front_end(source, bindings, sink).value();
  }
};

// Options for cuDNN's engine alone.
CompileOptions options_for(const std::string& target) {
  CompileOptions options;
  options.lowering = "cudnn";
  options.target = targets::find_target(target).value();
  options.worker.command = {ATTN_WORKER_PROGRAM, "worker"};
  return options;
}

std::function<Result<std::int64_t>()> version(std::int64_t number) {
  return [number] { return number; };
}

TEST(Compile, FillsThePlan) {
  const Read spec;
  const auto compiled = compile(spec.attention, spec.source, spec.bindings, options_for("h200"));
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
  EXPECT_EQ(compiled->plan.strategy, "composite");
  EXPECT_TRUE(compiled->refused.empty());
  const plan::Plan* plan = &compiled->plan;
  EXPECT_EQ(plan->spec_name, "window");
  EXPECT_EQ(plan->spec_text, kSpec);
  EXPECT_EQ(plan->bindings, spec.bindings);
  EXPECT_EQ(plan->target.name, "h200");
  EXPECT_GE(plan->cudnn_version, 91900);
  EXPECT_EQ(plan->program, lower(spec.attention, "cudnn").value());
  ASSERT_EQ(plan->compiled.size(), 1U);
  EXPECT_FALSE(plan->compiled[0].cudnn_plan.empty());
  EXPECT_EQ(plan->signature, plan::signature_of(*plan));
  // What was made can be written and read.
  const auto again = plan::deserialize(plan::serialize(*plan));
  ASSERT_TRUE(again.ok()) << again.error().to_text();
  EXPECT_EQ(*again, *plan);
}

// The same attention under another name, which is no part of what it is compiled to.
TEST(Compile, WhatIsCachedIsNotCompiledAgain) {
  const Read spec;
  const std::string renamed = "attention other" + std::string(kSpec).substr(16);
  const Read other(renamed.c_str());
  CompileOptions options = options_for("h200");
  const auto plain = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(plain.ok()) << plain.error().to_text();
  options.cached = {std::make_shared<cache::PlanCache>(), version(plain->plan.cudnn_version)};
  const auto first = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(first.ok()) << first.error().to_text();
  EXPECT_EQ(first->plan.signature, plain->plan.signature);
  options.worker.command = {"/bin/false"};  // nothing can be compiled any more
  options.worker.report_folder = ::testing::TempDir();
  const auto second = compile(other.attention, other.source, other.bindings, options);
  ASSERT_TRUE(second.ok()) << second.error().to_text();
  EXPECT_EQ(second->plan.strategy, "composite");
  EXPECT_EQ(second->plan.spec_name, "other");
  EXPECT_EQ(second->plan.spec_text, renamed);
  EXPECT_EQ(second->plan.compiled, first->plan.compiled);
  EXPECT_EQ(options.cached.cache->counts()[cache::Counter::hit], 1U);
  EXPECT_EQ(options.cached.cache->counts()[cache::Counter::build], 1U);
  options.target = targets::find_target("a100").value();
  EXPECT_FALSE(compile(other.attention, other.source, other.bindings, options).ok());
}

// Two specs with one program, for which another Skv would not mean the same.
TEST(Compile, WhatIsCachedServesTheSizesOfItsSpec) {
  const auto text = [](const char* mask) {
    return fmt::format(
        "attention x {{ dims B = 1, Hq = 2, Sq = 64, Skv = 96, D = 64; lengths q, kv; mask {}; }}",
        mask);
  };
  const std::string constant = text("kv_idx < 48"), half = text("kv_idx < Skv // 2");
  CompileOptions options = options_for("h200");
  options.cached.cache = std::make_shared<cache::PlanCache>();
  options.cached.cudnn_version = version(worker::cudnn_version(options.worker).value());
  std::vector<plan::Plan> plans;
  for (const std::string* spec : {&constant, &half}) {
    const Read read(spec->c_str(), {});
    auto compiled = compile(read.attention, read.source, read.bindings, options);
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
    plans.push_back(std::move(compiled->plan));
  }
  EXPECT_EQ(plans[0].signature, plans[1].signature);
  EXPECT_EQ(options.cached.cache->counts()[cache::Counter::build], 1U);
  using plan::Dim;
  EXPECT_EQ(plans[0].shape.padded, (std::vector{Dim::B, Dim::Sq, Dim::Skv}));
  EXPECT_EQ(plans[1].shape.padded, (std::vector{Dim::B, Dim::Sq}));
}

TEST(Compile, WithoutKeysNothingIsAskedOfCuDnn) {
  const Read spec;
  diag::Sink sink(spec.source);
  const sema::Bindings bindings{{"Skv", "0"}};
  const auto attention = front_end(spec.source, bindings, sink);
  ASSERT_TRUE(attention) << diag::to_text(sink);
  const auto compiled = compile(*attention, spec.source, bindings, options_for("h200"));
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
  const plan::Plan& plan = compiled->plan;
  EXPECT_TRUE(plan.compiled.empty());
  EXPECT_EQ(plan.kernels.size(), 1U);
  EXPECT_EQ(plan.cudnn_version, 0) << "any version may load it";
  std::vector<std::string> names;
  for (const auto& tensor : plan.program.tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"q", "o", "lse"})) << "no tensor without elements";
  const auto again = plan::deserialize(plan::serialize(plan));
  ASSERT_TRUE(again.ok()) << again.error().to_text();
  EXPECT_EQ(*again, plan);
}

CompileOptions options_for_native() {
  CompileOptions options = options_for("h200");
  options.lowering = "native";
  return options;
}

TEST(Compile, KernelsAloneDoNotAskForCudnn) {
  const Read spec;
  CompileOptions options = options_for_native();
  options.cached = {std::make_shared<cache::PlanCache>(), []() -> Result<std::int64_t> {
                      return {ErrorCode::cudnn, "nobody should ask"};
                    }};
  const auto compiled = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
  EXPECT_EQ(compiled->plan.cudnn_version, 0);
  ASSERT_EQ(compiled->plan.choice.size(), 1U);
  EXPECT_EQ(compiled->plan.choice[0].strategy, "native");
  EXPECT_GT(compiled->plan.choice[0].predicted_ms, 0);
  const auto& step = std::get<plan::KernelStep>(compiled->plan.program.steps[0]);
  const std::string nvrtc = nvrtc::nvrtc_version("").value();
  EXPECT_EQ(compiled->plan.nvrtc_version, nvrtc);
  EXPECT_THAT(step.source, ::testing::Not(::testing::HasSubstr("NVRTC")));  // the program is equal
  EXPECT_TRUE(compile(spec.attention, spec.source, spec.bindings, options).ok());
  EXPECT_EQ(options.cached.cache->counts()[cache::Counter::hit], 1U);
}

// The signature does not cover facts: a cached plan may be of an attnc that stored fewer.
TEST(Compile, CachedPlansSayWhatTheirKernelsAreMadeOf) {
  const Read spec;
  CompileOptions options = options_for_native();
  const auto plain = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(plain.ok()) << plain.error().to_text();
  EXPECT_TRUE(std::get<plan::KernelStep>(plain->plan.program.steps[0]).facts);
  plan::Plan cached = plain->plan;
  std::get<plan::KernelStep>(cached.program.steps[0]).facts.reset();
  options.cached = {std::make_shared<cache::PlanCache>(), version(0)};
  const cache::Key key(cached.signature);
  ASSERT_TRUE(options.cached.cache->get(key, [&]() -> Result<plan::Plan> { return cached; }).ok());
  const auto again = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(again.ok()) << again.error().to_text();
  EXPECT_EQ(options.cached.cache->counts()[cache::Counter::hit], 1U);
  EXPECT_EQ(again->plan.program, plain->plan.program);
}

// A cache in an empty folder.
CachedPlans cached_in(const std::filesystem::path& folder) {
  cache::PlanCacheOptions options;
  options.folder = folder.string();
  return {std::make_shared<cache::PlanCache>(std::move(options)), version(91900)};
}

std::uint64_t builds(const CompileOptions& options) {
  return options.cached.cache->counts()[cache::Counter::build];
}

// The tile with the fewest scores for its rate has no registers for this.
TEST(Compile, KernelsThatSpillAreFollowedByTheNextTile) {
  if (engines::kWatched) GTEST_SKIP() << "kernels that watch themselves may spill";
  const Read spec(
      "attention a { dims B = 2, Hq = 4, Hkv = 2, Sq = 160, Skv = 288, D = 64; dtype f16; "
      "tensor table: f32[8]; tensor bias: f32[Hq, Skv]; "
      "score 20.0 * tanh((score + bias[h, kv_idx]) / 20.0); "
      "score score + table[(q_idx - kv_idx) // 64 % 8]; "
      "mask q_idx >= kv_idx && q_idx - kv_idx < 100; outputs o, lse; }",
      {});
  const auto folder = std::filesystem::path(::testing::TempDir()) / "attn_spilling";
  std::filesystem::remove_all(folder);
  CompileOptions options = options_for_native();
  options.cached = cached_in(folder);
  const auto compiled = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
  EXPECT_TRUE(compiled->refused.empty());
  const auto& choice = compiled->plan.choice;
  ASSERT_EQ(choice.size(), 2U);
  EXPECT_EQ(choice[0].refused, "");
  EXPECT_EQ(choice[1].strategy, "native");
  EXPECT_THAT(choice[1].refused, HasSubstr("are spilled to memory"));
  EXPECT_NE(choice[0].predicted_ms, choice[1].predicted_ms);
  // The cache remembers the first that could be built, also in another process.
  options.cached = cached_in(folder);
  const auto again = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(again.ok()) << again.error().to_text();
  EXPECT_EQ(again->plan, compiled->plan);
  EXPECT_EQ(builds(options), 0U);
  std::filesystem::remove_all(folder);
}

// How many programs of `native` are compiled if the kernels of each spill so many bytes.
std::size_t tried_programs(std::int64_t spilled_bytes) {
  const Read spec("attention a { dims B = 1, Hq = 2, Sq = 4096, D = 64; }", {});
  CompileOptions options = options_for_native();
  options.worker.command = {ATTN_WORKER_PROGRAM, "spilling", fmt::format("{}", spilled_bytes)};
  const auto compiled = compile(spec.attention, spec.source, spec.bindings, options);
  if (compiled.ok()) return compiled->plan.choice.size();
  const std::string& all = compiled.error().payload;
  std::size_t count = 0;
  for (std::size_t at = 0; (at = all.find("\"strategy\":", at)) != all.npos; ++at) ++count;
  return std::max<std::size_t>(count, 1);  // an error alone does not tell its strategy
}

// The tiles behind those that spill would spill, too.
TEST(Compile, KernelsThatSpillAreNotFollowedByManyTiles) {
  if (engines::kWatched) GTEST_SKIP() << "kernels that watch themselves may spill";
  EXPECT_EQ(tried_programs(0), 1U);
  EXPECT_EQ(tried_programs(40), 5U);
  EXPECT_EQ(tried_programs(nvrtc::kHopelessBytes), 5U);
  EXPECT_EQ(tried_programs(nvrtc::kHopelessBytes + 1), 1U);
}

TEST(Compile, TheFastestTileThatWasMeasuredIsKept) {
  const Read spec("attention a { dims B = 1, Hq = 2, Sq = 128, D = 256; }", {});
  const auto folder = std::filesystem::path(::testing::TempDir()) / "attn_tiles";
  std::filesystem::remove_all(folder);
  CompileOptions options = options_for_native();
  options.cached = cached_in(folder);
  double ms = 9;  // of the last, which is the fastest
  options.autotune = Autotune::all;
  options.measure = [&ms](const ir::Attention&, const plan::Plan&) { return ms -= 1; };
  const auto fastest = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(fastest.ok()) << fastest.error().to_text();
  const auto& choice = fastest->plan.choice;
  ASSERT_EQ(choice.size(), 3U);  // tiles
  EXPECT_EQ(choice[0].measured_ms, ms);
  EXPECT_NE(choice[0].predicted_ms, choice[1].predicted_ms);
  options.cached = cached_in(folder);
  options.autotune = Autotune::never;
  const auto kept = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(kept.ok()) << kept.error().to_text();
  EXPECT_EQ(kept->plan.program, fastest->plan.program);
  EXPECT_EQ(builds(options), 0U);
  std::filesystem::remove_all(folder);
}

// What is measured of the best programs of both engines, which are predicted to take about as long.
struct Near : ::testing::Test {
  Near() {
    options.lowering = planner::kAnyLowering;
    options.autotune = Autotune::near;
    options.measure = [this](const ir::Attention&, const plan::Plan& plan) -> Result<double> {
      ++measured;
      if (!serves) return Error{ErrorCode::cuda, "out of memory"};
      return planner::engine_of(plan.strategy)->name == fastest ? 1.0 : 2.0;
    };
  }
  plan::Plan compiled() {
    return compile(spec.attention, spec.source, spec.bindings, options).value().plan;
  }

  const Read spec{"attention a { dims B = 1, Hq = 16, Sq = 512, D = 128; mask q_idx >= kv_idx; }",
                  {}};
  CompileOptions options = options_for("h200");
  std::string_view fastest = "native";
  bool serves = true;
  int measured = 0;
};

TEST_F(Near, TheFastestEngineIsTaken) {
  for (const std::string_view engine : {"native", "cudnn"}) {
    fastest = engine;
    measured = 0;
    const plan::Plan plan = compiled();
    EXPECT_EQ(measured, 2);
    EXPECT_EQ(planner::engine_of(plan.strategy)->name, engine);
    EXPECT_EQ(plan.choice.front().measured_ms, 1.0);
    EXPECT_EQ(std::ranges::count(plan.choice, std::optional(2.0), &plan::Alternative::measured_ms),
              1);
  }
}

TEST_F(Near, OneThatIsPredictedToTakeMuchLongerIsNotMeasured) {
  const Read softcap(
      "attention a { dims B = 4, Hq = 32, Sq = 4096, D = 128; mask q_idx >= kv_idx; score 20 * "
      "tanh(score / 20); }",
      {});
  const auto taken = compile(softcap.attention, softcap.source, softcap.bindings, options);
  ASSERT_TRUE(taken.ok()) << taken.error().to_text();
  const auto& choice = taken->plan.choice;
  const auto cudnn = std::ranges::find(choice, "composite", &plan::Alternative::strategy);
  ASSERT_NE(cudnn, choice.end());
  EXPECT_GT(cudnn->predicted_ms, 1.25 * choice.front().predicted_ms);
  EXPECT_EQ(measured, 0);
}

TEST_F(Near, PredictionsDecideWhereNothingCanBeMeasured) {
  serves = false;
  const plan::Plan plan = compiled();
  EXPECT_EQ(measured, 1);
  options.autotune = Autotune::never;
  EXPECT_EQ(plan, compiled());
}

TEST_F(Near, WhatWasMeasuredIsRemembered) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "attn_near";
  std::filesystem::remove_all(folder);
  fastest = "cudnn";
  for (int i = 0; i < 2; ++i) {
    options.cached = cached_in(folder);
    options.cached.cudnn_version = version(91900);
    EXPECT_EQ(planner::engine_of(compiled().strategy)->name, "cudnn");
    EXPECT_EQ(measured, 2);
  }
  std::filesystem::remove_all(folder);
}

// Another cuDNN may be faster, or build what this one did not: here nothing, as no worker runs.
TEST(Compile, WhatWasTriedIsRememberedForItsVersionOfCudnn) {
  const Read spec("attention a { dims B = 1, Hq = 2, Sq = 128, D = 256; }", {});
  const auto folder = std::filesystem::path(::testing::TempDir()) / "attn_versions";
  std::filesystem::remove_all(folder);
  CompileOptions options = options_for_native();
  options.lowering = planner::kAnyLowering;
  options.worker.report_folder = ::testing::TempDir();
  options.cached = cached_in(folder);
  double ms = 9;  // of the last, which is the fastest
  options.autotune = Autotune::all;
  options.measure = [&ms](const ir::Attention&, const plan::Plan&) { return ms -= 1; };
  const auto fastest = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(fastest.ok()) << fastest.error().to_text();
  options.autotune = Autotune::never;
  const auto compiled_with = [&](std::int64_t number) {
    options.cached = cached_in(folder);
    options.cached.cudnn_version = version(number);
    return compile(spec.attention, spec.source, spec.bindings, options).value().plan;
  };
  const plan::Plan kept = compiled_with(91900), other = compiled_with(92000);
  EXPECT_EQ(kept.program, fastest->plan.program);
  EXPECT_EQ(kept.choice, fastest->plan.choice);
  EXPECT_NE(other.program, fastest->plan.program);
  EXPECT_FALSE(other.choice.front().measured_ms.has_value());
  std::filesystem::remove_all(folder);
}

TEST(Compile, BothEnginesAreInTheChoice) {
  const Read spec;
  CompileOptions options = options_for("h200");
  options.lowering = planner::kAnyLowering;
  const auto compiled = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
  std::set<std::string> engines;
  for (const plan::Alternative& way : compiled->plan.choice) {
    EXPECT_GT(way.predicted_ms, 0);
    engines.emplace(planner::engine_of(way.strategy)->name);
  }
  EXPECT_EQ(engines, (std::set<std::string>{"cudnn", "native"}));
  options.target = targets::find_target("a100").value();
  const auto other = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(other.ok()) << other.error().to_text();
  EXPECT_TRUE(other->refused.empty());
  const auto& ways = other->plan.choice;
  const auto way = std::ranges::find(ways, "native", &plan::Alternative::strategy);
  ASSERT_NE(way, ways.end());
  // Kernels that were never measured on a GPU count longer there than they are predicted.
  EXPECT_EQ(planner::engine_of(ways.front().strategy)->name, "cudnn");
  EXPECT_GT(engines::kUnmeasured * way->predicted_ms, ways.front().predicted_ms);
  EXPECT_EQ(way->refused, "");
}

// cuDNN has a backward of this, which would drop other weights than the forward.
TEST(Compile, TheEngineThatRandomDropoutLeavesOutIsInTheChoice) {
  const Read spec(
      "attention a { dims B = 1, Hq = 4, Sq = 128, Skv = 128, D = 64; dropout 0.1; "
      "tensor s: f32[Hq]; sink s[h]; outputs o, max; grad q, k, v; }",
      {});
  CompileOptions options = options_for_native();
  options.lowering = planner::kAnyLowering;
  const auto compiled = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
  EXPECT_EQ(compiled->plan.strategy, "native");
  const plan::Alternative& other = compiled->plan.choice.back();
  EXPECT_EQ(planner::engine_of(other.strategy)->name, "cudnn");
  EXPECT_THAT(other.refused,
              HasSubstr("beside a sink, cuDNN's engines output no statistic but lse"));
}

// As many captured tensors as a thread has no registers for: with every tile.
TEST(Compile, KernelsThatSpillAreRefused) {
  if (engines::kWatched) GTEST_SKIP() << "kernels that watch themselves may spill";
  std::string tensors, score = "score";
  for (int i = 0; i < 10; ++i) {
    tensors += fmt::format("tensor t{0}: f32[Sq, Skv]; ", i);
    score += fmt::format(" + t{0}[q_idx, kv_idx] * score", i);
  }
  const std::string text = "attention a { dims B = 1, Hq = 2, Sq = 512, D = 256; " + tensors +
                           "score " + score + "; mask q_idx >= kv_idx; }";
  const Read spec(text.c_str(), {});
  const auto compiled = compile(spec.attention, spec.source, spec.bindings, options_for_native());
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, ErrorCode::unsupported);
  EXPECT_THAT(compiled.error().message, HasSubstr("needs more registers than there are"));
}

// Products of cuDNN's with every factor read both ways, and every attnc kernel.
class SplitBackward : public ::testing::TestWithParam<const char*> {};

TEST_P(SplitBackward, Compiles) {
  const support::Source source(
      "x.attn", fmt::format("attention x {{ dims B = 2, Hq = 6, Hkv = 2, Sq = 33, Skv = 97, "
                            "Dqk = 40, Dv = 72; outputs o, lse; {} }}",
                            GetParam()));
  diag::Sink sink(source);
  const auto attention = front_end(source, {}, sink);
  ASSERT_TRUE(attention) << diag::to_text(sink);
  CompileOptions options = options_for("h200");
  options.lowering = "unfused";
  options.direction = plan::Direction::backward;
  const auto compiled = compile(*attention, source, {}, options);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
  const plan::Program lowered = lower(*attention, "unfused", options.direction).value();
  EXPECT_EQ(compiled->plan.program.steps.size(), lowered.steps.size());
  EXPECT_EQ(compiled->plan.program.internals, lowered.internals);
}

INSTANTIATE_TEST_SUITE_P(
    Compile, SplitBackward,
    ::testing::Values("dtype bf16; score tanh(score); mask q_idx >= kv_idx;",
                      "dtype f16; layout thd; learn t: f16[9, Hq]; sink t[0, h];"
                      "score score + t[clamp(kv_idx - q_idx, -4, 4) + 4, h];",
                      "learn sinks: bf16[Hq]; sink sinks[h]; lengths q, kv; grad sinks;",
                      "tensor keep: bool[Skv]; dropout 0.5, keep[kv_idx];"));

TEST(Compile, RecompileKeepsTheProgramAndChangesTheTarget) {
  const Read spec;
  const auto first = compile(spec.attention, spec.source, spec.bindings, options_for("h200"));
  ASSERT_TRUE(first.ok()) << first.error().to_text();
  const auto second = recompile(first->plan, options_for("b200"));
  ASSERT_TRUE(second.ok()) << second.error().to_text();
  const plan::Plan* plan = &first->plan;
  const plan::Plan* other = &second->plan;
  EXPECT_EQ(other->program, plan->program);
  EXPECT_EQ(other->spec_text, plan->spec_text);
  EXPECT_EQ(other->target.name, "b200");
  EXPECT_NE(other->signature.hash, plan->signature.hash);
  EXPECT_NE(other->compiled[0].cudnn_plan, plan->compiled[0].cudnn_plan);
}

std::set<std::string> names_of(const plan::Program& program, plan::TensorRole role) {
  std::set<std::string> names;
  for (const plan::TensorInfo& tensor : program.tensors) {
    if (tensor.role == role) names.insert(tensor.name);
  }
  return names;
}

constexpr const char* kTrained = R"(attention trained {
  dims B = 1, Hq = 2, Hkv = 1, Sq = 128, D = 64;
  mask q_idx >= kv_idx;
  grad q, v;
})";

// A pool of pages has no gradient.
constexpr const char* kPaged = R"(attention paged {
  dims B = 1, Hq = 2, Hkv = 1, Sq = 128, D = 64;
  layout paged(page = 16);
})";

TEST(CompilePair, MakesAForwardWithStatisticsAndTheBackward) {
  const Read spec(kTrained, {});
  ASSERT_FALSE(spec.attention.wants_lse);
  const auto pair = compile_pair(spec.attention, spec.source, spec.bindings, options_for("h200"));
  ASSERT_TRUE(pair.ok()) << pair.error().to_text();
  ASSERT_EQ(pair->size(), 2U);
  const plan::Program& forward = pair->at(0).plan.program;
  const plan::Program& backward = pair->at(1).plan.program;
  EXPECT_EQ(plan::direction_of(forward), plan::Direction::forward);
  EXPECT_EQ(names_of(forward, plan::TensorRole::stats), (std::set<std::string>{"lse"}));
  EXPECT_EQ(names_of(forward, plan::TensorRole::output), (std::set<std::string>{"o"}));
  EXPECT_EQ(names_of(backward, plan::TensorRole::saved), (std::set<std::string>{"o", "lse"}));
  EXPECT_EQ(names_of(backward, plan::TensorRole::gradient), (std::set<std::string>{"dq", "dv"}));
  const auto again = plan::deserialize_bundle(plan::serialize(bundle_of(*pair)));
  ASSERT_TRUE(again.ok()) << again.error().to_text();
  EXPECT_EQ(*again, bundle_of(*pair));
}

// cuDNN is predicted to be faster, but builds no backward of these.
TEST(CompilePair, WithRandomDropoutIsOfTheNextEngineIfOneBuildsNoBackward) {
  const Read spec(R"(attention dropped {
  dims B = 2, Hq = 8, Hkv = 4, Sq = 8192, D = 256;
  score 50 * tanh(score / 50);
  mask q_idx >= kv_idx && q_idx - kv_idx < 4096;
  dropout 0.1;
  grad q, k, v;
})",
                  {});
  CompileOptions options = options_for("b200");
  options.lowering = planner::kAnyLowering;
  const auto pair = compile_pair(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(pair.ok()) << pair.error().to_text();
  for (const Compiled& each : *pair) EXPECT_EQ(each.plan.strategy, "native");
  EXPECT_EQ(pair->front().plan.choice.at(1).strategy, "composite");
}

TEST(CompilePair, RecompilingKeepsDirectionsAndOutputs) {
  const Read spec(kTrained, {});
  CompileOptions options = options_for("h200");
  const auto pair = compile_pair(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(pair.ok()) << pair.error().to_text();
  options.target = targets::find_target("b200").value();
  const auto second = recompile(bundle_of(*pair), options);
  ASSERT_TRUE(second.ok()) << second.error().to_text();
  ASSERT_EQ(second->size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(second->at(i).plan.program, pair->at(i).plan.program);
    EXPECT_EQ(second->at(i).plan.target.name, "b200");
  }
}

TEST(CompilePair, FailsAsAPairAndSaysInWhichDirection) {
  const Read spec(kPaged, {});
  CompileOptions options = options_for("h200");
  auto pair = compile_pair(spec.attention, spec.source, spec.bindings, options);
  ASSERT_FALSE(pair.ok());
  options.direction = plan::Direction::backward;
  const auto alone = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_FALSE(alone.ok());
  EXPECT_EQ(pair.error().code, ErrorCode::unsupported);
  EXPECT_EQ(pair.error().message, "backward: " + alone.error().message);
  EXPECT_EQ(pair.error().notes, alone.error().notes);
  EXPECT_EQ(pair.error().payload, alone.error().payload);
  EXPECT_FALSE(pair.error().payload.empty());
  options.worker.command = {"/nonexistent/worker"};
  pair = compile_pair(spec.attention, spec.source, spec.bindings, options);
  ASSERT_FALSE(pair.ok());
  EXPECT_EQ(pair.error().code, ErrorCode::worker);
  EXPECT_THAT(pair.error().message, ::testing::StartsWith("forward: "));
}

TEST(Compile, PassesOnWhatTheWorkerReports) {
  const Read spec;
  CompileOptions options = options_for("h200");
  options.target.device_json = "{}";
  EXPECT_FALSE(compile(spec.attention, spec.source, spec.bindings, options).ok());
  options = options_for("h200");
  options.worker.command = {"/nonexistent/worker"};
  const auto plan = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::worker);
}

// A program that ends without an answer the first time, and is the worker from then on.
std::vector<std::string> failing_once(const std::filesystem::path& mark) {
  return {"/bin/sh", "-c",
          fmt::format("if [ ! -e '{0}' ]; then touch '{0}'; exit 3; fi; exec '{1}' worker",
                      mark.string(), ATTN_WORKER_PROGRAM)};
}

TEST(Compile, GoesOnWhenAWorkerFails) {
  const Read spec(
      "attention a { dims B = 1, Hq = 2, Sq = 512, D = 64; "
      "mask q_idx >= kv_idx && q_idx // 128 == kv_idx // 128; }",
      {});
  const auto folder = std::filesystem::path(::testing::TempDir()) / "attn_failing_once";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  CompileOptions options = options_for("h200");
  const std::string first = [&] {
    planner::Search search(spec.attention, options.lowering, context_of(options));
    return std::string(search.next().value()->strategy->name);
  }();
  options.worker.command = failing_once(folder / "mark");
  options.worker.report_folder = folder.string();
  const auto compiled = compile(spec.attention, spec.source, spec.bindings, options);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
  EXPECT_NE(compiled->plan.strategy, first);
  const auto& choice = compiled->plan.choice;
  const auto failed = std::ranges::find(choice, first, &plan::Alternative::strategy);
  ASSERT_NE(failed, choice.end());
  EXPECT_THAT(failed->refused, HasSubstr("exited without an answer"));
  EXPECT_EQ(choice.front().strategy, compiled->plan.strategy);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace attn::driver::compile_tests
