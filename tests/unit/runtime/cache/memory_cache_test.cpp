#include "runtime/cache/memory_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <stdexcept>
#include <thread>

#include "tests/unit/runtime/cache/cache_testing.h"

namespace attn::cache {
namespace {

using testing::key;

// Counts its live instances, like descriptors.
struct Live {
  explicit Live(int its_number) : number(its_number) { ++count; }
  ~Live() { --count; }
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  int number;
  static std::atomic<int> count;
};
std::atomic<int> Live::count{0};

using Cache = MemoryCache<Live>;
using Made = Result<Cache::Pointer>;

std::size_t bytes_of(const Live& /*live*/) { return 10; }

MemoryOptions limits(std::size_t values, std::size_t refusals = 4) {
  MemoryOptions options;
  options.values.entries = values;
  options.refusals.entries = refusals;
  return options;
}

auto make(int number) {
  return [number]() -> Made { return std::make_shared<Live>(number); };
}

Error error(ErrorCode code) { return {code, "because", {"a note"}, R"({"why": 1})"}; }

class MemoryCacheTest : public ::testing::Test {
 protected:
  std::uint64_t count(Counter counter) const { return counters_.read()[counter]; }
  Counters counters_;
};

TEST_F(MemoryCacheTest, MakesOnceAndRemembers) {
  Cache cache(limits(4), &bytes_of, counters_);
  const Cache::Pointer first = *cache.get(key("a"), make(1));
  const Cache::Pointer second = *cache.get(key("a"), make(2));
  EXPECT_EQ(first, second);
  EXPECT_EQ(second->number, 1);
  EXPECT_EQ(count(Counter::miss), 1U);
  EXPECT_EQ(count(Counter::hit), 1U);
  EXPECT_EQ(cache.bytes(), 10U);
}

TEST_F(MemoryCacheTest, EvictionDestroysAtOnce) {
  {
    Cache cache(limits(4), &bytes_of, counters_);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(cache.get(key(std::to_string(i)), make(i)).ok());
    EXPECT_EQ(count(Counter::evict), 6U);
    EXPECT_EQ(Live::count, 4);
  }
  EXPECT_EQ(Live::count, 0);
}

TEST_F(MemoryCacheTest, TenThousandKeysThroughAHundredPlaces) {
  Cache cache(limits(100), &bytes_of, counters_);
  for (int i = 0; i < 10000; ++i) {
    ASSERT_TRUE(cache.get(key(std::to_string(i)), make(i)).ok());
    ASSERT_LE(Live::count, 100);
  }
  EXPECT_EQ(cache.size(), 100U);
  cache.clear();
  EXPECT_EQ(Live::count, 0);
}

TEST_F(MemoryCacheTest, WhatIsInUseIsNotEvictedAndFoundAgain) {
  Cache cache(limits(2), &bytes_of, counters_);
  const Cache::Pointer used = *cache.get(key("used"), make(7));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(cache.get(key(std::to_string(i)), make(i)).ok());
  EXPECT_EQ(*cache.get(key("used"), make(8)), used);
  cache.clear();
  EXPECT_EQ(used->number, 7);  // now only the user's
  EXPECT_EQ(Live::count, 1);
}

TEST_F(MemoryCacheTest, RefusalsAreKeptWhole) {
  Cache cache(limits(4), &bytes_of, counters_);
  const auto refuse = []() -> Made { return error(ErrorCode::unsupported); };
  ASSERT_FALSE(cache.get(key("a"), refuse).ok());
  const Made again = cache.get(key("a"), make(1));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().to_text(), error(ErrorCode::unsupported).to_text());
  EXPECT_EQ(again.error().payload, error(ErrorCode::unsupported).payload);
  EXPECT_EQ(count(Counter::negative), 1U);
  EXPECT_EQ(count(Counter::miss), 1U);
}

TEST_F(MemoryCacheTest, RefusalsHaveALimitOfTheirOwn) {
  Cache cache(limits(1, 4), &bytes_of, counters_);
  ASSERT_TRUE(cache.get(key("value"), make(1)).ok());
  const auto refuse = []() -> Made { return error(ErrorCode::unsupported); };
  for (int i = 0; i < 10; ++i) ASSERT_FALSE(cache.get(key(std::to_string(i)), refuse).ok());
  EXPECT_TRUE(cache.get(key("0"), make(1)).ok());   // evicted
  EXPECT_FALSE(cache.get(key("9"), make(1)).ok());  // kept
  EXPECT_EQ(count(Counter::evict), 1U);             // "value" for "0"
}

TEST_F(MemoryCacheTest, AFailureIsTriedAgain) {
  Cache cache(limits(4), &bytes_of, counters_);
  for (const ErrorCode code : {ErrorCode::cuda, ErrorCode::worker, ErrorCode::io}) {
    const Made failed = cache.get(key("a"), [code]() -> Made { return error(code); });
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, code);
  }
  EXPECT_TRUE(cache.get(key("a"), make(1)).ok());
  EXPECT_EQ(count(Counter::negative), 0U);
}

// Every thread requests "a" before it is made: making waits until all others have requested it.
class Together {
 public:
  Together(Cache& cache, const Counters& counters) : cache_(cache), counters_(counters) {}

  // What each of eight threads gets if the first makes `made`.
  std::vector<Made> ask(const std::function<Made()>& made) {
    std::vector<std::optional<Made>> answers(8);
    std::vector<std::thread> threads;
    for (auto& answer : answers) {
      threads.emplace_back([&] {
        try {
          answer = cache_.get(key("a"), [&]() -> Made {
            ++making_;
            while (counters_.read()[Counter::wait] < 7) std::this_thread::yield();
            return made();
          });
        } catch (const std::runtime_error&) {
          ++thrown_;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<Made> given;
    for (auto& answer : answers) {
      if (answer) given.push_back(std::move(*answer));
    }
    return given;
  }

  int making() const { return making_; }
  int thrown() const { return thrown_; }

 private:
  Cache& cache_;
  const Counters& counters_;
  std::atomic<int> making_{0};
  std::atomic<int> thrown_{0};
};

TEST_F(MemoryCacheTest, ThreadsThatAskTogetherShareOne) {
  Cache cache(limits(4), &bytes_of, counters_);
  Together together(cache, counters_);
  const std::vector<Made> answers = together.ask(make(1));
  EXPECT_EQ(together.making(), 1);
  ASSERT_EQ(answers.size(), 8U);
  for (const Made& answer : answers) EXPECT_EQ(*answer, *answers.front());
  EXPECT_EQ(count(Counter::miss), 1U);
  EXPECT_EQ(count(Counter::wait), 7U);
  EXPECT_EQ(Live::count, 1);
}

TEST_F(MemoryCacheTest, ThreadsThatAskTogetherShareTheError) {
  Cache cache(limits(4), &bytes_of, counters_);
  Together together(cache, counters_);
  const auto answers = together.ask([]() -> Made { return error(ErrorCode::cudnn); });
  EXPECT_EQ(together.making(), 1);
  ASSERT_EQ(answers.size(), 8U);
  for (const Made& answer : answers) {
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().to_text(), error(ErrorCode::cudnn).to_text());
  }
}

TEST_F(MemoryCacheTest, ThoseWhoWaitAreAnsweredWhenTheMakingThrows) {
  Cache cache(limits(4), &bytes_of, counters_);
  Together together(cache, counters_);
  const auto answers = together.ask([]() -> Made { throw std::runtime_error("out of memory"); });
  EXPECT_EQ(together.thrown(), 1);
  ASSERT_EQ(answers.size(), 7U);
  for (const Made& answer : answers) EXPECT_EQ(answer.error().code, ErrorCode::internal);
  EXPECT_TRUE(cache.get(key("a"), make(1)).ok());
}

// Would deadlock if the lock were held while a value is made.
TEST_F(MemoryCacheTest, DifferentKeysAreMadeAtOnce) {
  Cache cache(limits(8), &bytes_of, counters_);
  std::latch all(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const Made made = cache.get(key(std::to_string(i)), [&]() -> Made {
        all.arrive_and_wait();
        return std::make_shared<Live>(i);
      });
      EXPECT_EQ((*made)->number, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count(Counter::miss), 8U);
}

TEST_F(MemoryCacheTest, ManyThreadsOnFewPlaces) {
  Cache cache(limits(5, 3), &bytes_of, counters_);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&cache, seed] {
      std::uint64_t state = seed;
      for (int round = 0; round < 3000; ++round) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        const int number = static_cast<int>((state >> 33) % 20);
        const bool refused = number % 5 == 0;
        const Made made = cache.get(key(std::to_string(number)), [&]() -> Made {
          if (refused) return error(ErrorCode::unsupported);
          return std::make_shared<Live>(number);
        });
        ASSERT_EQ(made.ok(), !refused);
        if (made.ok()) {
          ASSERT_EQ((*made)->number, number);
        }
        if (round % 500 == 0) cache.clear();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Counts counts = counters_.read();
  EXPECT_EQ(counts[Counter::hit] + counts[Counter::miss] + counts[Counter::wait] +
                counts[Counter::negative],
            8U * 3000U);
  EXPECT_LE(cache.size(), 5U + 8U);  // plus those in use at the last insert
  cache.clear();
  EXPECT_EQ(Live::count, 0);
}

TEST(Counters, AreReadAndReset) {
  Counters counters;
  counters.add(Counter::load);
  counters.add(Counter::evict, 3);
  EXPECT_EQ(counters.read()[Counter::evict], 3U);
  EXPECT_EQ(counters.reset()[Counter::load], 1U);
  for (const std::uint64_t value : counters.read().values) EXPECT_EQ(value, 0U);
  EXPECT_EQ(to_string(Counter::damaged), "damaged");
}

}  // namespace
}  // namespace attn::cache
