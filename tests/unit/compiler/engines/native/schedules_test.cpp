#include "compiler/engines/native/schedules.h"

#include <gtest/gtest.h>

#include "tests/unit/compiler/engines/native/lowered.h"

namespace attn::engines::schedules_tests {
namespace {

using testing::lowered;
using testing::step_of;
using testing::stored;

bool is_scheduled(const std::string& clauses) {
  const NativeProgram made = lowered(clauses).value();
  const plan::KernelStep& step = step_of(made);
  EXPECT_EQ(step.schedule.has_value(), step.launches[0].kernel == "attn_schedule");
  return step.schedule.has_value();
}

TEST(NativeSchedules, BatchesOfAnyLengthsHaveOne) {
  const std::string dims = "dims B = 4, Hq = 8, Hkv = 2, Sq = 4, Skv = 4096, D = 128; ";
  EXPECT_TRUE(is_scheduled(dims + "lengths kv;"));
  EXPECT_TRUE(is_scheduled(dims + "lengths q, kv; align bottom_right; mask q_idx >= kv_idx;"));
  EXPECT_TRUE(is_scheduled(dims + "layout thd; mask q_idx - kv_idx < 64 && q_idx >= kv_idx;"));
  EXPECT_FALSE(is_scheduled(dims)) << "no lengths";
  EXPECT_FALSE(
      is_scheduled("dims B = 1, Hq = 8, Hkv = 2, Sq = 4, Skv = 4096, D = 128; lengths kv;"))
      << "one sequence";
  EXPECT_FALSE(is_scheduled(dims + "lengths kv; mask q_idx % 7 == kv_idx % 7;")) << "no band";
  EXPECT_FALSE(is_scheduled(dims + "lengths kv; tensor w: i32[Hq]; mask q_idx - kv_idx < w[h];"))
      << "heads differ";
  EXPECT_FALSE(is_scheduled("dtype e4m3; quantize per_tensor; " + dims + "lengths kv;"))
      << "values are moved";
}

// Copies for three warp groups would spill.
TEST(NativeSchedules, AreOfOneOrTwoWarpGroups) {
  const auto threads = [](const std::string& layout) {
    const NativeProgram made =
        lowered("dims B = 4, Hq = 8, Hkv = 2, Sq = 4096, Skv = 65536, D = 128; " + layout).value();
    return step_of(made).launches.back().block[0];
  };
  EXPECT_EQ(threads("layout thd;"), 128 + 256);
  EXPECT_EQ(threads("layout paged(page = 64); lengths kv;"), 128 + 256);
  EXPECT_EQ(threads("lengths kv;"), 128 + 384);
}

// What a schedule takes follows from tiles of rows.
TEST(NativeSchedules, NeedNoMemoryOfScores) {
  const std::string others =
      "; layout paged(page = 64); align bottom_right; lengths kv; mask q_idx >= kv_idx;";
  const auto few = stored("B = 64, Sq = 512, Skv = 8192" + others);
  EXPECT_EQ(few, stored("B = 64, Sq = 512, Skv = 131072" + others));
  EXPECT_EQ(few.size(), 3U);
  EXPECT_EQ(few.at("native.options"), 8);
  EXPECT_GT(stored("B = 64, Sq = 8192, Skv = 8192" + others).at("native.schedule"),
            few.at("native.schedule"));
}

}  // namespace
}  // namespace attn::engines::schedules_tests
