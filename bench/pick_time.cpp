// Time to pick a plan for known sizes, in nanoseconds:
//   pick_time [--benchmark_filter=..] [other options of Google Benchmark]
// The argument is the number of plans, which differ in the batch size. `exact` picks sizes of plans
// at random; `bucket` picks one batch less.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/picker/picker.h"

namespace {

using namespace attn;
using plan::Dim;

using Picker = picker::Picker<int>;

constexpr std::int64_t kStep = 2;  // between the batches of two plans

plan::Sizes sizes_of(std::int64_t batches) {
  return {{Dim::B, batches}, {Dim::Hq, 32},   {Dim::Hkv, 8}, {Dim::Sq, 1024},
          {Dim::Skv, 1024},  {Dim::Dqk, 128}, {Dim::Dv, 128}};
}

std::unique_ptr<Picker> g_picker;  // set by SetUp, shared by all threads

void fill(const benchmark::State& state) {
  picker::PickerOptions options;
  for (std::int64_t i = 1; i <= state.range(0); ++i) {
    plan::Plan plan;
    plan.shape = plan::Shape{sizes_of(i * kStep), {Dim::B}};
    options.plans.plans.push_back(std::move(plan));
  }
  auto picker = Picker::create(std::move(options), [](const plan::Plan& plan) -> Result<int> {
    return static_cast<int>(plan.shape.sizes[Dim::B]);
  });
  ATTN_CHECK(picker.ok(), "the plans fit together");
  g_picker = std::move(*picker);
}
void drop(const benchmark::State& /*state*/) { g_picker.reset(); }

void pick(benchmark::State& state, std::int64_t less) {
  std::vector<plan::Sizes> wanted(std::size_t{1} << 10);
  std::mt19937 random(static_cast<unsigned>(state.thread_index()));
  for (plan::Sizes& sizes : wanted) {
    const std::int64_t plan = 1 + static_cast<std::int64_t>(random() % state.range(0));
    sizes = {{Dim::B, plan * kStep - less}, {Dim::Sq, 1024}, {Dim::Skv, 1024}};
  }
  std::size_t i = 0;
  for (auto _ : state) {
    const auto picked = g_picker->pick(wanted[i++ % wanted.size()]);
    ATTN_CHECK(picked.ok(), "every size has a plan");
    benchmark::DoNotOptimize(*picked);
  }
}

void exact(benchmark::State& state) { pick(state, 0); }
void bucket(benchmark::State& state) { pick(state, 1); }

BENCHMARK(exact)->Arg(1)->Arg(100)->Setup(fill)->Teardown(drop);
BENCHMARK(bucket)->Arg(1)->Arg(100)->Setup(fill)->Teardown(drop);
BENCHMARK(exact)->Arg(100)->Setup(fill)->Teardown(drop)->Threads(8)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
