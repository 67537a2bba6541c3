// Many threads use a plan cache whose plans are built by cuDNN.
#include "runtime/cache/plan_cache.h"

#include <cudnn_graph.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "runtime/cudnn/compile.h"
#include "tests/stress/stress.h"

namespace attn::stress {
namespace {

using standin::make_plan;

class PlanCache : public execute::OnStandins {
 protected:
  void SetUp() override {
    OnStandins::SetUp();
    library_ = must(cudnn::Library::load(standin::folder()));
    folder_ = ::testing::TempDir() + "attn_stress_" + std::to_string(::getpid());
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    OnStandins::TearDown();
  }

  // The same program, compiled by the stand-in.
  Result<plan::Plan> build(const plan::Plan& wanted) const {
    plan::Plan plan = wanted;
    auto compiled = plan.compiled.begin();
    for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(plan.program)) {
      ATTN_ASSIGN(*compiled++, cudnn::compile(*library_, step->graph, plan.target.device_json,
                                              [](const cudnn::Progress&) {}));
    }
    return plan;
  }
  static cache::Key key(int number) { return cache::Key(make_plan({.number = number}).signature); }

  std::shared_ptr<const cudnn::Library> library_;
  std::string folder_;
};

TEST_F(PlanCache, BuildsDoNotWaitForEachOther) {
  cache::PlanCache cache;
  script_cudnn(
      {"cudnnBackendFinalize", CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 0, 0, nullptr, 0, 1});
  std::thread meanwhile([&] {
    wait_until_blocked(kThreads);  // all are in cuDNN at the same time
    standin::cudnn().control.release();
  });
  in_threads(kThreads, [&](int thread) {
    const plan::Plan wanted = make_plan({.number = thread});
    must(cache.get(cache::Key(wanted.signature), [&] { return build(wanted); }));
  });
  meanwhile.join();
  EXPECT_EQ(cache.size(), std::size_t{kThreads});
}

TEST_F(PlanCache, ThreadsThatAskForOnePlanGetTheSame) {
  cache::PlanCache cache;
  script_cudnn(
      {"cudnnBackendFinalize", CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 0, 0, nullptr, 0, 1});
  std::thread releases([&] {
    while (cache.counts()[cache::Counter::wait] < kThreads - 1) std::this_thread::yield();
    standin::cudnn().control.release();
  });
  std::vector<cache::PlanCache::Pointer> given(kThreads);
  const plan::Plan wanted = make_plan();
  in_threads(kThreads, [&](int thread) {
    given[static_cast<std::size_t>(thread)] =
        must(cache.get(cache::Key(wanted.signature), [&] { return build(wanted); }));
  });
  releases.join();
  for (const auto& plan : given) EXPECT_EQ(plan, given[0]);
  EXPECT_EQ(standin::cudnn().control.calls("cudnnBackendFinalize",
                                           CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
            1);
}

// A cache with memory and folder tiers, and a cuDNN that sometimes fails.
TEST_F(PlanCache, ManyThreadsOverMemoryAndAFolder) {
  cache::PlanCacheOptions options;
  options.memory.values.entries = 5;
  options.folder = folder_;
  cache::PlanCache cache(std::move(options));
  std::atomic<std::uint64_t> asked{0}, failed{0};
  for (long nth = 3; nth < 60; nth += 5) {
    script_cudnn(
        standin::fail_nth("cudnnBackendSetAttribute", 40 * nth, CUDNN_STATUS_INTERNAL_ERROR));
  }
  in_threads(kThreads, [&](int thread) {
    Random random(thread);
    for (int round = 0; round < times(60); ++round) {
      const int number = random.below(20);
      const plan::Plan wanted = make_plan({.number = number, .steps = 2});
      const auto plan = cache.get(cache::Key(wanted.signature), [&] { return build(wanted); });
      ++asked;
      if (!plan.ok()) {
        ++failed;
        ASSERT_EQ(plan.error().code, ErrorCode::cudnn) << plan.error().to_text();
        continue;
      }
      ASSERT_EQ((*plan)->signature, wanted.signature);
      ASSERT_EQ((*plan)->program, wanted.program);
      if (random.below(30) == 0) cache.clear_memory();
    }
  });
  const cache::Counts counts = cache.counts();
  EXPECT_EQ(
      counts[cache::Counter::hit] + counts[cache::Counter::miss] + counts[cache::Counter::wait],
      asked);
  EXPECT_EQ(counts[cache::Counter::miss],
            counts[cache::Counter::load] + counts[cache::Counter::build]);
  EXPECT_EQ(counts[cache::Counter::damaged], 0U);
  EXPECT_GT(failed, 0U);
  EXPECT_EQ(standin::live().descriptors, 0);
}

// Executes a built plan.
TEST_F(PlanCache, PlansThatWereBuiltRun) {
  const plan::Plan wanted = make_plan({.steps = 3, .params = 2, .derives_each = true});
  const plan::Plan built = must(build(wanted));
  const auto executable = must(execute::Executable::load(must(standin::open_runtime()), built));
  standin::Case on = must(standin::Case::make(executable.device(), built, 3));
  execute::Binding binding = must(executable.bind(on.arguments()));
  expect_right(on, binding);
}

}  // namespace
}  // namespace attn::stress
