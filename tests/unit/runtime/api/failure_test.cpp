#include "runtime/api/failure.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string_view>
#include <utility>

#include "runtime/api/sized.h"

namespace attn::api {
namespace {

TEST(Failure, KeepsWhatAStatusSays) {
  attn_error error;
  Status status = Error{ErrorCode::plan_version, "made for another", {"one", "two"}, "{}"};
  EXPECT_EQ(guarded(&error, [&] { return std::move(status); }), ATTN_STATUS_PLAN_VERSION);
  EXPECT_EQ(attn_error_status(&error), ATTN_STATUS_PLAN_VERSION);
  EXPECT_STREQ(attn_error_message(&error), "made for another");
  ASSERT_EQ(attn_error_note_count(&error), 2u);
  EXPECT_STREQ(attn_error_note(&error, 1), "two");
  EXPECT_STREQ(attn_error_note(&error, 2), "");
  EXPECT_STREQ(attn_error_payload(&error), "{}");
  EXPECT_STREQ(attn_error_text(&error), "made for another\n  note: one\n  note: two");
}

TEST(Failure, ASuccessLeavesNothingOfTheLast) {
  attn_error error;
  guarded(&error, [] { return Status(Error{ErrorCode::cuda, "broken", {"note"}, "{}"}); });
  EXPECT_EQ(guarded(&error, [] { return Status(); }), ATTN_STATUS_OK);
  EXPECT_EQ(attn_error_status(&error), ATTN_STATUS_OK);
  EXPECT_STREQ(attn_error_message(&error), "");
  EXPECT_EQ(attn_error_note_count(&error), 0u);
  EXPECT_STREQ(attn_error_payload(&error), "");
  EXPECT_STREQ(attn_error_text(&error), "");
}

TEST(Failure, NothingThatIsThrownLeaves) {
  attn_error error;
  const auto no_memory = [&]() -> Status { throw std::bad_alloc(); };
  EXPECT_EQ(guarded(&error, no_memory), ATTN_STATUS_OUT_OF_MEMORY);
  EXPECT_STREQ(attn_error_message(&error), "the host is out of memory");
  EXPECT_STREQ(attn_error_text(&error), "the host is out of memory");

  const auto bug = [&]() -> Status { throw std::out_of_range("position 3"); };
  EXPECT_EQ(guarded(&error, bug), ATTN_STATUS_INTERNAL);
  EXPECT_STREQ(attn_error_message(&error), "a bug in attnc: position 3");
  EXPECT_EQ(guarded(&error, [&]() -> Status { throw 3; }), ATTN_STATUS_INTERNAL);
  EXPECT_EQ(guarded(nullptr, bug), ATTN_STATUS_INTERNAL);
}

struct Newest {
  std::size_t size;
  std::int32_t first;
  std::int32_t second;
  std::int64_t third;
};
struct Older {
  std::size_t size;
  std::int32_t first;
  std::int32_t second;
};
struct Newer {
  Newest known;
  std::int64_t unknown;
};

TEST(Sized, WhatAnOlderCallerHasNotIsZero) {
  const Older older = {sizeof older, 1, 2};
  const auto read = read_sized(reinterpret_cast<const Newest*>(&older));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->first, 1);
  EXPECT_EQ(read->second, 2);
  EXPECT_EQ(read->third, 0);
}

TEST(Sized, WhatANewerCallerSetsMustBeKnown) {
  Newer newer = {{sizeof newer, 1, 2, 3}, 0};
  const auto read = read_sized(&newer.known);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->third, 3);
  newer.unknown = 1;
  EXPECT_EQ(read_sized(&newer.known).error().code, ErrorCode::invalid_argument);
}

TEST(Sized, IsFilledAsFarAsTheCallerHasRoom) {
  struct {
    Older older;
    std::int64_t behind;
  } caller = {{sizeof(Older), 0, 0}, 7};
  ASSERT_TRUE(write_sized(reinterpret_cast<Newest*>(&caller), Newest{0, 1, 2, 3}).ok());
  EXPECT_EQ(caller.older.size, sizeof(Older));
  EXPECT_EQ(caller.older.second, 2);
  EXPECT_EQ(caller.behind, 7);
}

struct Element {
  std::int32_t first;
  std::int32_t second;
};

TEST(Sized, ArraysOfOlderAndNewerElementsAreRead) {
  const std::int32_t older[] = {1, 2, 3};
  const auto read = read_array(reinterpret_cast<const Element*>(older), 3, 4, 4);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ((*read)[2].first, 3);
  EXPECT_EQ((*read)[2].second, 0);
  std::int32_t newer[] = {1, 2, 0, 4, 5, 0};
  const auto* elements = reinterpret_cast<const Element*>(newer);
  EXPECT_EQ((*read_array(elements, 2, 12, 4))[1].second, 5);
  newer[5] = 1;
  EXPECT_EQ(read_array(elements, 2, 12, 4).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(read_array(elements, 1, 3, 4).error().code, ErrorCode::invalid_argument);
}

TEST(Sized, ASizeThatWasNotSetIsAnError) {
  const Newest unset = {};
  EXPECT_EQ(read_sized(&unset).error().code, ErrorCode::invalid_argument);
  Newest garbage = {std::size_t{1} << 40, 0, 0, 0};
  EXPECT_EQ(read_sized(&garbage).error().code, ErrorCode::invalid_argument);
  EXPECT_FALSE(write_sized(&garbage, Newest{}).ok());
}

}  // namespace
}  // namespace attn::api
