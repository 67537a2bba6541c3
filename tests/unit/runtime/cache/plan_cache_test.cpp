#include "runtime/cache/plan_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "tests/unit/runtime/cache/cache_testing.h"

namespace attn::cache {
namespace {

namespace fs = std::filesystem;
using testing::key;
using testing::numbered_plan;

class PlanCacheTest : public testing::FolderTest {
 protected:
  // Opens another cache on the same folder, like another process.
  void open(const std::string& folder) {
    PlanCacheOptions options;
    options.folder = folder;
    options.warn = [this](const Error& error) { warnings_.push_back(error); };
    cache_.emplace(std::move(options));
  }

  // Gets plan `number`, from wherever the cache has it.
  void expect_plan(int number) {
    const plan::Plan plan = numbered_plan(number);
    const auto found = cache_->get(key(plan), [&]() -> Result<plan::Plan> { return plan; });
    ASSERT_TRUE(found.ok()) << found.error().to_text();
    EXPECT_EQ(**found, plan);
  }

  void expect_not_served(const plan::Plan& plan) {
    EXPECT_TRUE(is_known_bad(plan));
    open(folder());
    ASSERT_TRUE(cache_->files()->save(plan).ok());
    const auto found = cache_->get(
        key(plan), [] { return Result<plan::Plan>(ErrorCode::unsupported, "known bad"); });
    EXPECT_FALSE(found.ok());
    EXPECT_EQ(count(Counter::outdated), 1U);
    EXPECT_EQ(file_count(), 0U);
  }

  std::string path_of(int number) const {
    return FileStore(folder()).path_of(numbered_plan(number).signature.hash);
  }
  std::uint64_t count(Counter counter) const { return cache_->counts()[counter]; }

  std::optional<PlanCache> cache_;
  std::vector<Error> warnings_;
};

TEST_F(PlanCacheTest, MemoryThenFolderThenBuild) {
  open(folder());
  expect_plan(1);
  EXPECT_EQ(count(Counter::build), 1U);
  expect_plan(1);
  EXPECT_EQ(count(Counter::hit), 1U);
  EXPECT_EQ(cache_->size(), 1U);
  EXPECT_GT(cache_->bytes(), numbered_plan(1).signature.text.size());
  cache_->clear_memory();
  expect_plan(1);
  EXPECT_EQ(count(Counter::load), 1U);
  open(folder());
  expect_plan(1);
  EXPECT_EQ(count(Counter::load), 1U);
  EXPECT_EQ(count(Counter::build), 0U);
  EXPECT_EQ(cache_->reset_counts()[Counter::miss], 1U);
  EXPECT_EQ(count(Counter::miss), 0U);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(PlanCacheTest, WithoutAFolderThereIsMemory) {
  open("");
  expect_plan(1);
  expect_plan(1);
  EXPECT_EQ(count(Counter::hit), 1U);
  EXPECT_FALSE(cache_->files());
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(PlanCacheTest, DamagedFilesAreReplaced) {
  open(folder());
  expect_plan(1);
  const std::string good = plan::serialize(numbered_plan(1));
  std::string flipped = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 1);
  for (const std::string& bytes : {flipped, good.substr(0, good.size() / 2), std::string(),
                                   std::string("no plan at all, but some text")}) {
    std::ofstream(path_of(1), std::ios::binary) << bytes;
    open(folder());
    expect_plan(1);
    EXPECT_EQ(count(Counter::damaged), 1U);
    EXPECT_EQ(count(Counter::build), 1U);
    open(folder());
    expect_plan(1);
    EXPECT_EQ(count(Counter::load), 1U);
  }
  EXPECT_TRUE(warnings_.empty());
}

// A plan file whose name does not match its plan, as if renamed.
TEST_F(PlanCacheTest, AFileOfAnotherNameIsNotServed) {
  open(folder());
  expect_plan(1);
  expect_plan(2);
  fs::rename(path_of(1), path_of(2));
  open(folder());
  expect_plan(2);
  EXPECT_EQ(count(Counter::build), 1U);
  EXPECT_EQ(count(Counter::damaged), 1U);
}

TEST_F(PlanCacheTest, EnginesKnownToBeWrongAreNotServed) {
  plan::Plan plan = plan::testing::sample_plan();
  plan.target.sm = 100;
  EXPECT_FALSE(is_known_bad(plan::testing::signed_again(plan)));
  plan.cudnn_version = 91000;  // a version whose plans are rejected (known_bad.def)
  plan = plan::testing::signed_again(plan);
  expect_not_served(plan);
}

TEST_F(PlanCacheTest, GraphsKnownToBeWrongAreNotServed) {
  expect_not_served(plan::testing::like_padding_plan());
}

// A file from before the first release, under the name that the plan has now.
TEST_F(PlanCacheTest, PlansOfDevelopmentVersionsAreReplaced) {
  open(folder());
  expect_plan(1);
  std::string old = plan::serialize(numbered_plan(1));
  old[3] = 'N';
  std::ofstream(path_of(1), std::ios::binary) << old;
  open(folder());
  expect_plan(1);
  EXPECT_EQ(count(Counter::damaged), 1U);
  EXPECT_EQ(count(Counter::build), 1U);
  open(folder());
  expect_plan(1);
  EXPECT_EQ(count(Counter::load), 1U);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(PlanCacheTest, RefusalsAreNotWritten) {
  open(folder());
  const auto refuse = [] {
    return Result<plan::Plan>(Error{ErrorCode::unsupported, "no engine", {"a note"}, "{}"});
  };
  for (int i = 0; i < 2; ++i) {
    const auto refused = cache_->get(key(numbered_plan(1)), refuse);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().notes.size(), 1U);
  }
  EXPECT_EQ(count(Counter::negative), 1U);
  EXPECT_EQ(count(Counter::build), 1U);
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(PlanCacheTest, APlanOfAnotherSignatureIsNotKept) {
  open(folder());
  const auto found =
      cache_->get(key(numbered_plan(1)), [] { return Result<plan::Plan>(numbered_plan(2)); });
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::plan_version);
  EXPECT_FALSE(fs::exists(folder()));
  expect_plan(1);
}

TEST_F(PlanCacheTest, AnImpossibleFolderIsWarnedOfOnce) {
  std::ofstream(root() / "file") << "no folder";
  open((root() / "file" / "cache").string());
  for (int i = 0; i < 3; ++i) expect_plan(i);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_EQ(warnings_[0].code, ErrorCode::io);
  expect_plan(0);
  EXPECT_EQ(count(Counter::hit), 1U);
}

// Runs as a user to whom file modes apply (not root).
class Unprivileged {
 public:
  Unprivileged() : was_(::geteuid()) { change(was_ == 0 ? kNobody : was_); }
  ~Unprivileged() { change(was_); }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;
  static void change(uid_t to) {
    if (::seteuid(to) != 0) std::abort();
  }
  uid_t was_;
};

TEST_F(PlanCacheTest, AReadOnlyFolderServesWhatItHas) {
  open(folder());
  expect_plan(1);
  fs::permissions(folder(), fs::perms(0555));
  {
    const Unprivileged unprivileged;
    open(folder());
    for (int i = 0; i < 3; ++i) expect_plan(i);
  }
  fs::permissions(folder(), fs::perms(0755));
  EXPECT_EQ(count(Counter::load), 1U);
  EXPECT_EQ(count(Counter::build), 2U);
  EXPECT_EQ(warnings_.size(), 1U);
  EXPECT_EQ(file_count(), 1U);
}

TEST_F(PlanCacheTest, AFolderThatMayNotBeReadIsWarnedOfOnce) {
  open(folder());
  expect_plan(1);
  fs::permissions(path_of(1), fs::perms(0));
  fs::permissions(folder(), fs::perms(0555));
  {
    const Unprivileged unprivileged;
    open(folder());
    expect_plan(1);
    expect_plan(2);
  }
  fs::permissions(folder(), fs::perms(0755));
  EXPECT_EQ(count(Counter::build), 2U);
  EXPECT_EQ(count(Counter::damaged), 0U);
  EXPECT_EQ(warnings_.size(), 1U);
}

// Limits the file size so that writes fail halfway, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(PlanCacheTest, AFullDiskIsWarnedOfOnceAndLeavesNothingBehind) {
  open(folder());
  {
    const FullDisk full(100);
    for (int i = 0; i < 3; ++i) expect_plan(i);
  }
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_EQ(warnings_[0].code, ErrorCode::io);
  EXPECT_EQ(file_count(), 0U);
  expect_plan(3);  // there is space again
  EXPECT_EQ(file_count(), 1U);
}

TEST_F(PlanCacheTest, ManyThreadsAndCachesOverOneFolder) {
  std::atomic<int> builds{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread, &builds] {
      PlanCacheOptions options;
      options.folder = folder();
      options.memory.values.entries = 3;
      PlanCache cache(std::move(options));
      for (int round = 0; round < 30; ++round) {
        const plan::Plan plan = numbered_plan((round * 7 + thread) % 10);
        const auto found = cache.get(key(plan), [&]() -> Result<plan::Plan> {
          ++builds;
          return plan;
        });
        ASSERT_TRUE(found.ok());
        ASSERT_EQ(**found, plan);
      }
      ASSERT_EQ(cache.counts()[Counter::damaged], 0U);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(builds, 10);
  EXPECT_LE(builds, 40);  // once per cache; then the folder has it
  EXPECT_EQ(file_count(), 10U);
}

}  // namespace
}  // namespace attn::cache
