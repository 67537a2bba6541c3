#include "runtime/picker/builds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/unit/runtime/picker/picker_testing.h"

namespace attn::picker {
namespace {

using namespace testing;
using std::chrono::milliseconds;

const Error kBroken{ErrorCode::unsupported, "no engine"};

void wait_for(const std::atomic<int>& count, int value) {
  while (count.load() < value) std::this_thread::sleep_for(milliseconds(1));
}

TEST(Builds, OfThreadsThatAskAtOnceOneBuilds) {
  constexpr int kThreads = 8;
  std::atomic<int> count = 0;
  std::latch together(kThreads);
  Builds builds([&](const Sizes&, const std::stop_token&) {
    ++count;
    std::this_thread::sleep_for(milliseconds(200));
    return Status(kBroken);
  });
  std::vector<std::jthread> threads;
  std::atomic<int> refused = 0;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      together.arrive_and_wait();
      const Status status = builds.now(sizes(1, 2, 3), false);
      if (!status.ok() && status.error().message == kBroken.message) ++refused;
    });
  }
  threads.clear();
  EXPECT_EQ(count, 1);
  EXPECT_EQ(refused, kThreads);
}

TEST(Builds, ThreadsThatAskForOthersBuildAtOnce) {
  std::latch both(2);
  Builds builds([&](const Sizes&, const std::stop_token&) {
    both.arrive_and_wait();  // deadlocks if builds run one after another
    return Status();
  });
  std::jthread other([&] { EXPECT_TRUE(builds.now(sizes(1, 1, 1), false).ok()); });
  EXPECT_TRUE(builds.now(sizes(2, 1, 1), false).ok());
}

TEST(Builds, AFailureIsRememberedUntilAskedToRetry) {
  std::atomic<int> count = 0;
  bool works = false;
  Builds builds([&](const Sizes&, const std::stop_token&) {
    ++count;
    return works ? Status() : Status(kBroken);
  });
  EXPECT_EQ(builds.now(sizes(1, 1, 1), false).error().message, "no engine");
  EXPECT_EQ(builds.now(sizes(1, 1, 1), false).error().message, "no engine");
  EXPECT_EQ(builds.later(sizes(1, 1, 1), false).error().message, "no engine");
  EXPECT_EQ(count, 1);
  EXPECT_FALSE(builds.now(sizes(1, 1, 1), true).ok());
  EXPECT_EQ(count, 2);
  works = true;
  EXPECT_TRUE(builds.later(sizes(1, 1, 1), true).ok());
  wait_for(count, 3);
  EXPECT_TRUE(builds.now(sizes(1, 1, 1), false).ok()) << "waits, or builds again";
}

TEST(Builds, TheBackgroundBuildsOneAfterTheOther) {
  std::atomic<int> inside = 0, most = 0, done = 0;
  const auto here = std::this_thread::get_id();
  Builds builds([&](const Sizes&, const std::stop_token&) {
    EXPECT_NE(std::this_thread::get_id(), here);
    most = std::max(most.load(), ++inside);
    std::this_thread::sleep_for(milliseconds(5));
    --inside;
    ++done;
    return Status();
  });
  for (int i = 1; i <= 10; ++i) {
    EXPECT_TRUE(builds.later(sizes(i, 1, 1), false).ok());
    EXPECT_TRUE(builds.later(sizes(i, 1, 1), false).ok()) << "it is on its way";
  }
  wait_for(done, 10);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(done, 10);
  EXPECT_EQ(most, 1);
}

TEST(Builds, WhatIsQueuedIsBuiltByWhoCannotWait) {
  std::atomic<int> first = 0, second = 0;
  std::latch release(1);
  Builds builds([&](const Sizes& wanted, const std::stop_token&) {
    if (wanted[Dim::B] == 1) {
      ++first;
      release.wait();
    } else {
      ++second;
    }
    return Status();
  });
  EXPECT_TRUE(builds.later(sizes(1, 1, 1), false).ok());
  EXPECT_TRUE(builds.later(sizes(2, 1, 1), false).ok());
  wait_for(first, 1);
  EXPECT_TRUE(builds.now(sizes(2, 1, 1), false).ok());
  EXPECT_EQ(second, 1);
  release.count_down();
  EXPECT_TRUE(builds.now(sizes(1, 1, 1), false).ok());
}

TEST(Builds, TheirEndStopsWhatIsBuiltAndDropsWhatIsQueued) {
  std::atomic<int> count = 0;
  bool stopped = false;
  {
    Builds builds([&](const Sizes&, const std::stop_token& stop) {
      ++count;
      while (!stop.stop_requested()) std::this_thread::sleep_for(milliseconds(1));
      stopped = true;
      return Status(kBroken);
    });
    EXPECT_TRUE(builds.later(sizes(1, 1, 1), false).ok());
    EXPECT_TRUE(builds.later(sizes(2, 1, 1), false).ok());
    wait_for(count, 1);
  }
  EXPECT_TRUE(stopped);
  EXPECT_EQ(count, 1);
  const Builds idle([](const Sizes&, const std::stop_token&) { return Status(); });
}

TEST(Builds, ABuilderThatThrowsIsAnError) {
  std::atomic<int> count = 0;
  Builds builds([&](const Sizes&, const std::stop_token&) -> Status {
    ++count;
    throw std::runtime_error("out of paper");
  });
  const Status status = builds.now(sizes(1, 1, 1), false);
  EXPECT_EQ(status.error().code, ErrorCode::internal);
  EXPECT_EQ(status.error().message, "building a plan threw an exception: out of paper");
  EXPECT_TRUE(builds.later(sizes(2, 1, 1), false).ok());
  wait_for(count, 2);
}

}  // namespace
}  // namespace attn::picker
