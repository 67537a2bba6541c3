#include "runtime/cache/lru.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>

#include "tests/unit/runtime/cache/cache_testing.h"

namespace attn::cache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::key;

TEST(Lru, TheLeastRecentlyUsedGoesFirst) {
  Lru<int> lru(MemoryLimits{3});
  EXPECT_THAT(lru.insert(key("a"), 1, 1), IsEmpty());
  EXPECT_THAT(lru.insert(key("b"), 2, 1), IsEmpty());
  EXPECT_THAT(lru.insert(key("c"), 3, 1), IsEmpty());
  ASSERT_NE(lru.find(key("a")), nullptr);
  EXPECT_THAT(lru.insert(key("d"), 4, 1), ElementsAre(2));
  EXPECT_THAT(lru.insert(key("e"), 5, 1), ElementsAre(3));
  EXPECT_THAT(lru.insert(key("f"), 6, 1), ElementsAre(1));
  EXPECT_EQ(lru.find(key("a")), nullptr);
  EXPECT_EQ(*lru.find(key("d")), 4);
}

TEST(Lru, BytesAreALimitToo) {
  Lru<int> lru(MemoryLimits{100, 10});
  EXPECT_THAT(lru.insert(key("a"), 1, 4), IsEmpty());
  EXPECT_THAT(lru.insert(key("b"), 2, 6), IsEmpty());
  EXPECT_EQ(lru.bytes(), 10U);
  EXPECT_THAT(lru.insert(key("c"), 3, 5), ElementsAre(1, 2));
  EXPECT_EQ(lru.bytes(), 5U);
}

TEST(Lru, WhatIsLargerThanAllowedIsNotKept) {
  Lru<int> lru(MemoryLimits{100, 10});
  EXPECT_THAT(lru.insert(key("a"), 1, 4), IsEmpty());
  EXPECT_THAT(lru.insert(key("b"), 2, 11), IsEmpty());
  EXPECT_EQ(lru.find(key("b")), nullptr);
  EXPECT_NE(lru.find(key("a")), nullptr);
  Lru<int> none(MemoryLimits{0});
  EXPECT_THAT(none.insert(key("a"), 1, 0), IsEmpty());
  EXPECT_EQ(none.size(), 0U);
}

TEST(Lru, WhatIsInUseStays) {
  using Pointer = std::shared_ptr<int>;
  Lru<Pointer> lru(MemoryLimits{2});
  Pointer a = std::make_shared<int>(1);
  const Pointer b = std::make_shared<int>(2);
  EXPECT_THAT(lru.insert(key("a"), a, 1), IsEmpty());
  EXPECT_THAT(lru.insert(key("b"), b, 1), IsEmpty());
  EXPECT_THAT(lru.insert(key("c"), std::make_shared<int>(3), 1),
              ElementsAre(::testing::Pointee(3)));
  const Pointer d = std::make_shared<int>(4);
  EXPECT_THAT(lru.insert(key("d"), d, 1), IsEmpty());
  EXPECT_EQ(lru.size(), 3U);  // all three are in use
  EXPECT_THAT(lru.trim(), IsEmpty());
  a.reset();
  EXPECT_THAT(lru.trim(), ElementsAre(::testing::Pointee(1)));
  EXPECT_EQ(lru.size(), 2U);
}

TEST(Lru, ACollidingHashIsAnotherKey) {
  Lru<int> lru(MemoryLimits{300});
  const auto truncated = [](int i) {
    const std::string text = std::to_string(i);
    return Key(plan::Signature{text, Hash128{0, hash128(text).low & 7}});
  };
  for (int i = 0; i < 200; ++i) EXPECT_THAT(lru.insert(truncated(i), i, 1), IsEmpty());
  for (int i = 0; i < 200; ++i) EXPECT_EQ(*lru.find(truncated(i)), i);
  EXPECT_EQ(lru.find(truncated(200)), nullptr);
}

TEST(Lru, ClearHandsBackAll) {
  Lru<int> lru(MemoryLimits{});
  EXPECT_THAT(lru.insert(key("a"), 1, 4), IsEmpty());
  EXPECT_THAT(lru.insert(key("b"), 2, 6), IsEmpty());
  EXPECT_THAT(lru.clear(), ::testing::UnorderedElementsAre(1, 2));
  EXPECT_EQ(lru.size() + lru.bytes(), 0U);
  EXPECT_THAT(lru.insert(key("a"), 3, 4), IsEmpty());
  EXPECT_EQ(*lru.find(key("a")), 3);
}

// Compares with a sorted list.
TEST(Lru, AgreesWithAPlainList) {
  constexpr std::size_t kLimit = 20;
  std::mt19937 random(7);
  Lru<int> lru(MemoryLimits{kLimit});
  std::list<int> order;  // most recently used first
  for (int round = 0; round < 20000; ++round) {
    const int number = static_cast<int>(random() % 40);
    const Key k = key(std::to_string(number));
    const auto place = std::ranges::find(order, number);
    const int* value = lru.find(k);
    ASSERT_EQ(value != nullptr, place != order.end()) << round;
    if (value != nullptr) {
      ASSERT_EQ(*value, number);
      order.splice(order.begin(), order, place);
      continue;
    }
    const std::vector<int> gone = lru.insert(k, number, 1);
    order.push_front(number);
    if (order.size() <= kLimit) {
      ASSERT_THAT(gone, IsEmpty());
    } else {
      ASSERT_THAT(gone, ElementsAre(order.back()));
      order.pop_back();
    }
  }
}

}  // namespace
}  // namespace attn::cache
