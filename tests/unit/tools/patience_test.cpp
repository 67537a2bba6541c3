#include "tools/patience.h"

#include <gmock/gmock.h>

#include "tests/unit/tools/spec_text.h"

namespace attn::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Spec sized() {
  return spec_of("attention f { dims B = 4, Hq = 2, Sq = 8192, Skv = 4097, D = 64; }");
}

TEST(Patience, RefusesHoursUnlessTold) {
  const Spec spec = sized();
  Patience patience(spec.attention, false);
  const Status refused = patience.observer().begins(4000);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(refused.error().message, HasSubstr("about 67 min for 2.7e+08 scores"));
  EXPECT_THAT(refused.error().notes,
              ElementsAre("--bind B=1 --bind Sq=1024 --bind Skv=513 takes about 16 s",
                          "--yes runs it all the same"));
  EXPECT_TRUE(patience.observer().begins(3500).ok());
  EXPECT_TRUE(Patience(spec.attention, true).observer().begins(1e9).ok());
}

TEST(Patience, CountsWhatComesAfterTheReference) {
  const Spec spec = sized();
  Patience patience(spec.attention, false, {"simulation", 2});
  const Status refused = patience.observer().begins(2000);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("the simulation would take about 67 min"));
  EXPECT_TRUE(patience.observer().begins(1750).ok());
}

TEST(Patience, ProposesOnlyWhatIsNeeded) {
  EXPECT_EQ(shorter(sized().attention, 200), "--bind B=1 takes about 50 s");
}

TEST(Patience, ProposesSmallerSizesForMinutes) {
  const Spec spec = sized();
  const auto notes = [&](double seconds) {
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(Patience(spec.attention, false).observer().begins(seconds).ok());
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(notes(200), HasSubstr("smaller sizes: --bind B=1 takes about 50 s"));
  EXPECT_THAT(notes(30), HasSubstr("about 30 s"));
  EXPECT_THAT(notes(30), Not(HasSubstr("--bind")));
}

TEST(Duration, InTheUnitThatIsRead) {
  EXPECT_EQ(duration_text(0.2), "1 s");
  EXPECT_EQ(duration_text(89), "89 s");
  EXPECT_EQ(duration_text(600), "10 min");
  EXPECT_EQ(duration_text(3 * 3600), "3.0 hours");
  EXPECT_EQ(duration_text(86400.0 * 10), "10 days");
}

}  // namespace
}  // namespace attn::tools
