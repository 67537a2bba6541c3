#include "runtime/base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace attn {
namespace {

Status fail_if(bool failing) {
  return failing ? Status(ErrorCode::io, "the disk is full") : Status();
}

Result<int> half(int value) {
  if (value % 2 != 0) return {ErrorCode::invalid_argument, "odd"};
  return value / 2;
}

Result<int> quarter(int value) {
  ATTN_ASSIGN(const int once, half(value));
  int twice = 0;
  ATTN_ASSIGN(twice, half(once));
  return twice;
}

Result<std::unique_ptr<int>> boxed(bool failing) {
  ATTN_RETURN_IF_ERROR(fail_if(failing));
  return std::make_unique<int>(7);
}

TEST(Status, IsOkUntilItHasAnError) {
  EXPECT_TRUE(fail_if(false).ok());
  const Status failed = fail_if(true);
  EXPECT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::io);
  EXPECT_EQ(failed.error().message, "the disk is full");
}

TEST(Result, HoldsAValueOrAnError) {
  const Result<int> good = half(8);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 4);
  EXPECT_TRUE(good.status().ok());
  const Result<int> bad = half(3);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().error().message, "odd");
}

TEST(Result, MacrosPassTheFirstErrorOn) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_FALSE(quarter(3).ok());
  EXPECT_FALSE(quarter(6).ok());
}

TEST(Result, MovesWhatCannotBeCopied) {
  const std::unique_ptr<int> value = *boxed(false);
  EXPECT_EQ(*value, 7);
  EXPECT_EQ(boxed(true).error().code, ErrorCode::io);
}

TEST(Error, PrintsItsNotesBelowTheMessage) {
  const Error error{ErrorCode::cudnn, "no plan", {"engine 5 said no", "engine 6 too"}, "{}"};
  EXPECT_EQ(error.to_text(), "no plan\n  note: engine 5 said no\n  note: engine 6 too");
}

TEST(ErrorCode, EachHasItsOwnNameAndADocumentedExitCode) {
  const ErrorCode all[] = {
#define ATTN_ERROR(name, exit_code, what) ErrorCode::name,
#include "runtime/base/error_codes.def"
#undef ATTN_ERROR
  };
  const std::set<int> documented = {1, 2, 3, 4, 5, 6, 70};
  std::set<std::string_view> names;
  for (const ErrorCode code : all) {
    EXPECT_TRUE(names.insert(to_string(code)).second);
    EXPECT_TRUE(documented.contains(exit_code(code))) << to_string(code);
  }
  EXPECT_EQ(to_string(ErrorCode::plan_newer), "plan_newer");
  EXPECT_EQ(exit_code(ErrorCode::plan_damaged), 6);
  EXPECT_EQ(exit_code(ErrorCode::internal), 70);
}

}  // namespace
}  // namespace attn
