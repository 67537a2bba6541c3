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

// Decodes that read many keys: few scores, many elements of k and v.
Spec wide() {
  return spec_of(R"(attention f {
    dims B = 64, Hq = 64, Hkv = 8, Sq = 1, Skv = 16384, D = 64;
    tensor bias: f32[Skv] = 0.5 * i0 + 1; score score + bias[kv_idx];
  })");
}

TEST(Patience, ProposesSmallerSizesWhereInputsTakeMinutes) {
  const Spec spec = wide();
  const auto told = [&](double pace, const InputTexts& texts) {
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(tell_inputs(spec.attention, texts, Needs::forward, false, pace).ok());
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string minutes = told(1e-7, {});
  EXPECT_THAT(minutes, HasSubstr("inputs: about 2 min for 1.1e+09 elements on the CPU"));
  EXPECT_THAT(minutes, HasSubstr("smaller sizes: --bind B=1 takes about 2 s"));
  EXPECT_EQ(told(1e-9, {}), "");
  EXPECT_EQ(told(1e-7, {{"k", "@k.npy"}, {"v", "@v.npy"}}), "");  // nothing is made but q and bias
  const Status hours = tell_inputs(spec.attention, {}, Needs::forward, false, 1e-5);
  ASSERT_FALSE(hours.ok());
  EXPECT_THAT(hours.error().message, HasSubstr("the inputs would take about 3.0 hours"));
  EXPECT_TRUE(tell_inputs(spec.attention, {}, Needs::forward, true, 1e-5).ok());
}

TEST(Patience, CountsWhatInputsTakeAtOtherSizes) {
  const Spec spec = wide();
  const ir::Attention& attention = spec.attention;
  ir::Dims one = attention.dims;
  one.set(ir::Dim::B, 1);
  const double elements = elements_made(attention, {}, Needs::forward, attention.dims);
  const double of_bias = elements - 64.0 * 64 * 64 - 2.0 * 64 * 8 * 16384 * 64;
  EXPECT_GT(of_bias, 3 * 16384);  // its default has operations
  EXPECT_EQ(elements_made(attention, {}, Needs::forward, one),
            64.0 * 64 + 2.0 * 8 * 16384 * 64 + of_bias);
  one.set(ir::Dim::Skv, 64);
  EXPECT_EQ(elements_made(attention, {}, Needs::forward, one),
            64.0 * 64 + 2.0 * 8 * 64 * 64 + of_bias / 256);
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
