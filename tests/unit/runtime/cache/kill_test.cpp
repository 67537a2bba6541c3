// Kills processes that write to one folder at random moments; every plan served must be right.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>

#include "runtime/cache/plan_cache.h"
#include "tests/unit/runtime/cache/cache_testing.h"

namespace attn::cache {
namespace {

using testing::key;

constexpr int kPlans = 12;
constexpr int kWriters = 4;
constexpr int kKills = 200;
constexpr int kMostKills = 800;  // for slow builds (sanitizers), where few die while writing
constexpr std::int64_t kWanted = 6;

// Incompressible plans of 40 or 400 kB: quick to make, so that writers spend most time writing.
plan::Plan large_plan(int number) {
  plan::Plan plan = testing::numbered_plan(number);
  plan.spec_text.assign(number % 4 == 0 ? 400'000 : 0, ' ');
  std::mt19937_64 random(static_cast<std::uint64_t>(number));
  for (plan::CompiledStep& step : plan.compiled) {
    for (int i = 0; i < 5'000; ++i) {
      const std::uint64_t word = random();
      step.cudnn_plan.append(reinterpret_cast<const char*>(&word), sizeof(word));
    }
  }
  return plan;
}

std::vector<plan::Plan> large_plans() {
  std::vector<plan::Plan> plans;
  for (int i = 0; i < kPlans; ++i) plans.push_back(large_plan(i));
  return plans;
}

PlanCacheOptions small_cache(const std::string& folder) {
  PlanCacheOptions options;
  options.folder = folder;
  options.memory.values.entries = 1;
  options.files.bytes = 1'200'000;  // too small for all, so it prunes and writes constantly
  return options;
}

// Requests one plan after another, forever; exits with 1 if it gets a wrong one.
[[noreturn]] void write_for_ever(const std::string& folder, const std::vector<plan::Plan>& plans,
                                 unsigned seed) {
  std::mt19937 random(seed);
  PlanCache cache(small_cache(folder));
  for (;;) {
    const plan::Plan& plan = plans[random() % plans.size()];
    const auto found = cache.get(key(plan), [&]() -> Result<plan::Plan> { return plan; });
    if (!found.ok() || **found != plan || cache.counts()[Counter::damaged] != 0) ::_exit(1);
  }
}

class Kill : public testing::FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    plans_ = large_plans();
    for (pid_t& writer : writers_) writer = start();
  }
  void TearDown() override {
    for (pid_t& writer : writers_) end(writer);
    FolderTest::TearDown();
  }

  pid_t start() {
    const unsigned seed = ++started_;
    const pid_t child = ::fork();
    EXPECT_GE(child, 0);
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // in case the test itself is killed
      write_for_ever(folder(), plans_, seed);
    }
    return child;
  }

  // Kills a writer, which must still be running: one that found a wrong plan has exited.
  static void end(pid_t& writer) {
    if (writer <= 0) return;
    const pid_t ended = std::exchange(writer, 0);
    ASSERT_EQ(::kill(ended, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(ended, &status, 0), ended);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "exit of a writer: " << status;
  }

  // Temporary files left by killed writers.
  std::int64_t temporaries() const {
    return std::ranges::count_if(
        std::filesystem::directory_iterator(folder()),
        [](const auto& entry) { return entry.path().extension() == ".tmp"; });
  }

  std::vector<plan::Plan> plans_;
  std::array<pid_t, kWriters> writers_{};
  unsigned started_ = 0;
};

TEST_F(Kill, NoDamagedFileIsEverServed) {
  std::mt19937 random(11);
  std::uint64_t loaded = 0;
  for (int i = 0; i < kKills || (i < kMostKills && temporaries() < kWanted); ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40'000));
    pid_t& writer = writers_[random() % kWriters];
    end(writer);
    PlanCache cache(small_cache(folder()));
    for (const plan::Plan& plan : plans_) {
      const auto found = cache.get(
          key(plan), [] { return Result<plan::Plan>(ErrorCode::unsupported, "is not there"); });
      if (!found.ok()) continue;
      ASSERT_EQ(**found, plan);
    }
    ASSERT_EQ(cache.counts()[Counter::damaged], 0U);
    loaded += cache.counts()[Counter::load];
    writer = start();
  }
  RecordProperty("loaded", static_cast<int>(loaded));
  RecordProperty("temporaries", static_cast<int>(temporaries()));
  EXPECT_GT(loaded, 200U) << "too little was there to be damaged";
  EXPECT_GE(temporaries(), kWanted) << "hardly a writer was killed while it wrote";
}

}  // namespace
}  // namespace attn::cache
