#include "compiler/target/deadline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attn::target {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class DeadlineTest : public ::testing::Test {
 protected:
  // A deadline by a clock that the test moves.
  Deadline within(seconds limit) {
    return Deadline(limit, [this] { return now_; });
  }
  void pass(int count) { now_ += seconds(count); }

  Deadline::Clock::time_point now_{};
};

TEST_F(DeadlineTest, IsOverAfterItsLimit) {
  Deadline deadline = within(seconds(10));
  pass(9);
  EXPECT_FALSE(deadline.is_over());
  EXPECT_EQ(deadline.left(), seconds(1));
  EXPECT_TRUE(deadline.check().ok());
  pass(1);
  EXPECT_TRUE(deadline.is_over());
  EXPECT_EQ(deadline.check().error().code, ErrorCode::worker);
  deadline.restart();
  EXPECT_TRUE(deadline.check().ok());
}

TEST_F(DeadlineTest, TheOuterOneEndsThatOfANestedBuild) {
  const auto outer = std::make_shared<Deadline>(within(seconds(10)));
  Deadline nested(
      seconds(8), [this] { return now_; }, outer);
  const Deadline unlimited(
      seconds(0), [this] { return now_; }, outer);
  EXPECT_EQ(nested.left(), seconds(8));
  EXPECT_EQ(unlimited.left(), seconds(10));
  pass(7);
  nested.restart();
  EXPECT_EQ(nested.left(), seconds(3));
  pass(3);
  EXPECT_TRUE(nested.is_over());
  EXPECT_THAT(nested.check().error().message, HasSubstr("longer than 10 s"));
  EXPECT_THAT(unlimited.check().error().message, HasSubstr("longer than 10 s"));
}

TEST_F(DeadlineTest, WithoutALimitItIsNeverOver) {
  const Deadline deadline = within(seconds(0));
  EXPECT_EQ(deadline.left(), std::chrono::nanoseconds::max());
  pass(1'000'000);
  EXPECT_TRUE(deadline.check().ok());
}

TEST_F(DeadlineTest, SaysWhichPhasesTookTheTime) {
  Deadline deadline = within(seconds(10));
  {
    const Deadline::Phase lowering(&deadline, "lowering");
    pass(2);
    {
      const Deadline::Phase masks(&deadline, "analysing masks");
      pass(7);
    }
    pass(2);
  }
  const Deadline::Phase none(nullptr, "of nothing");
  pass(1);
  const Status late = deadline.check();
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().message,
            "the build took longer than 10 s and was given up: 7 s analysing masks, 4 s lowering, "
            "1 s other");
  EXPECT_THAT(late.error().payload,
              HasSubstr(R"("phases":{"analysing masks":7.0,"lowering":4.0,"other":1.0})"));
}

}  // namespace
}  // namespace attn::target
