// Many threads use a cache of loaded executables.
#include <cudnn_graph.h>

#include <atomic>

#include "runtime/execute/executable_cache.h"
#include "tests/stress/stress.h"

namespace attn::stress {
namespace {

using execute::Binding;
using execute::Executable;
using execute::ExecutableCache;
using standin::Case;
using standin::make_plan;

class Cache : public execute::OnStandins {
 protected:
  static std::unique_ptr<ExecutableCache> cache_of(std::size_t entries) {
    cache::MemoryOptions limits;
    limits.values.entries = entries;
    return std::make_unique<ExecutableCache>(must(standin::open_runtime()), limits);
  }
  static std::int64_t plans_loaded() {
    return standin::cudnn().control.calls("cudnnBackendFinalize",
                                          CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  }
  // Blocks every load in cuDNN until release().
  static void block_loads() {
    script_cudnn(
        {"cudnnBackendFinalize", CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 0, 0, nullptr, 0, 1});
  }
};

TEST_F(Cache, ThreadsThatAskForOnePlanLoadItOnce) {
  const auto cache = cache_of(4);
  const plan::Plan plan = make_plan();
  block_loads();
  std::atomic<int> right{0};
  std::thread releases([&] {
    while (cache->counts()[cache::Counter::wait] < kThreads - 1) std::this_thread::yield();
    standin::cudnn().control.release();
  });
  in_threads(kThreads, [&](int thread) {
    const Executable executable = must(cache->get(plan));
    Case on = must(Case::make(executable.device(), plan, thread));
    Binding binding = must(executable.bind(on.arguments()));
    ASSERT_TRUE(binding.execute(nullptr).ok());
    right += must(on.is_right()) ? 1 : 0;
  });
  releases.join();
  EXPECT_EQ(right, kThreads);
  EXPECT_EQ(plans_loaded(), 1);
  EXPECT_EQ(cache->counts()[cache::Counter::load], 1U);
}

// No lock is held while cuDNN loads a plan: other threads load, look up and execute.
TEST_F(Cache, LoadsDoNotWaitForEachOther) {
  const auto cache = cache_of(16);
  const plan::Plan there = make_plan({.number = 100});
  const Executable executable = must(cache->get(there));
  Case on = must(Case::make(executable.device(), there));
  Binding binding = must(executable.bind(on.arguments()));
  block_loads();
  std::thread meanwhile([&] {
    wait_until_blocked(4);
    ASSERT_TRUE(cache->get(there).ok());
    expect_right(on, binding);
    EXPECT_EQ(standin::cudnn().control.blocked(), 4);
    standin::cudnn().control.release();
  });
  in_threads(4, [&](int thread) { must(cache->get(make_plan({.number = thread}))); });
  meanwhile.join();
  EXPECT_EQ(cache->size(), 5U);
}

// A bound executable stays alive while it executes, even if others replace it in the cache.
TEST_F(Cache, WhatExecutesIsNotEvicted) {
  const auto cache = cache_of(1);
  const plan::Plan plan = make_plan();
  Case on = must(Case::make(must(cuda::Device::open(0)), plan));
  Binding binding = must(must(cache->get(plan)).bind(on.arguments()));
  script_cudnn(standin::block_nth("cudnnBackendExecute", 1));
  std::thread executes([&] { ASSERT_TRUE(binding.execute(nullptr).ok()); });
  wait_until_blocked(1);
  in_threads(4, [&](int thread) {
    for (int number = 1; number < 20; ++number) {
      must(cache->get(make_plan({.number = 100 * thread + number})));
    }
  });
  cache->clear();
  standin::cudnn().control.release();
  executes.join();
  EXPECT_TRUE(must(on.is_right()));
}

// Ten thousand plans in a cache of a hundred: memory stays flat, and all descriptors are destroyed.
TEST_F(Cache, TenThousandPlansThroughAHundredPlaces) {
  constexpr int kPlans = 10000, kPlaces = 100;
  const auto cache = cache_of(kPlaces);
  std::atomic<int> next{0};
  std::atomic<std::int64_t> after_some{0};
  in_threads(4, [&](int thread) {
    for (int number = next++; number < kPlans; number = next++) {
      const plan::Plan plan = make_plan({.number = number, .derives_each = number % 2 == 0});
      const Executable executable = must(cache->get(plan));
      if (number == kPlans / 4) after_some = resident_bytes();
      if (number % 8 != 0) continue;
      Case on = must(Case::make(executable.device(), plan, thread));
      Binding binding = must(executable.bind(on.arguments()));
      ASSERT_TRUE(binding.execute(nullptr).ok());
      ASSERT_TRUE(must(on.is_right()));
      // One plan per cache entry, and per thread its plan and two packs.
      ASSERT_LE(standin::live().descriptors, kPlaces + 4 * 3);
    }
  });
  EXPECT_EQ(cache->size(), std::size_t{kPlaces});
  EXPECT_EQ(cache->counts()[cache::Counter::evict], std::size_t{kPlans - kPlaces});
  EXPECT_EQ(plans_loaded(), kPlans);
  EXPECT_TRUE(kSanitized || resident_bytes() - after_some < 8 << 20)
      << resident_bytes() - after_some;
  cache->clear();
  EXPECT_EQ(standin::live().descriptors, 0);
  EXPECT_EQ(standin::live().memory, 0);
}

TEST_F(Cache, ManyThreadsOverAFewPlaces) {
  const auto cache = cache_of(3);
  std::vector<plan::Plan> plans;
  for (int number = 0; number < 10; ++number) plans.push_back(make_plan({.number = number}));
  std::atomic<std::uint64_t> asked{0};
  in_threads(kThreads, [&](int thread) {
    Random random(thread);
    for (int round = 0; round < times(200); ++round) {
      if (random.below(50) == 0) cache->clear();
      const plan::Plan& plan = plans[static_cast<std::size_t>(random.below(10))];
      const Executable executable = must(cache->get(plan));
      ++asked;
      Case on = must(Case::make(executable.device(), plan, thread));
      Binding binding = must(executable.bind(on.arguments()));
      ASSERT_TRUE(binding.execute(nullptr).ok());
      ASSERT_TRUE(must(on.is_right()));
    }
  });
  const cache::Counts counts = cache->counts();
  EXPECT_EQ(
      counts[cache::Counter::hit] + counts[cache::Counter::miss] + counts[cache::Counter::wait],
      asked);
  EXPECT_EQ(counts[cache::Counter::miss], static_cast<std::uint64_t>(plans_loaded()));
}

}  // namespace
}  // namespace attn::stress
