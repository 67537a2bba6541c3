// Plan files of released format versions must still load. Those in tests/compat are never
// rewritten.
#include <gtest/gtest.h>

#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

struct Kept {
  const char* name;  // of the file
  Plan (*plan)();
};

class Compatibility : public ::testing::TestWithParam<Kept> {};

TEST_P(Compatibility, StillLoads) {
  const Kept& kept = GetParam();
  const Result<Plan> plan =
      load(std::string(ATTN_SOURCE_DIR "/tests/compat/") + kept.name + ".plan");
  ASSERT_TRUE(plan.ok()) << plan.error().to_text();
  EXPECT_EQ(*plan, kept.plan());
}

INSTANTIATE_TEST_SUITE_P(
    Files, Compatibility,
    ::testing::Values(Kept{"v1", testing::sample_plan}, Kept{"v4", testing::shaped_plan},
                      Kept{"v5", testing::chosen_plan}, Kept{"v6", testing::looping_plan},
                      Kept{"v7", testing::divided_plan}, Kept{"v7_decided", testing::decided_plan},
                      Kept{"v7_kernel", testing::kernel_plan}, Kept{"v8", testing::promoting_plan},
                      Kept{"v9", testing::quantized_plan}),
    [](const auto& file) { return std::string(file.param.name); });

// In files of the first version with ranks only the plans still have a meaning.
TEST(Compatibility, RanksOfVersion10StillLoad) {
  const Result<Family> family = load_family(ATTN_SOURCE_DIR "/tests/compat/v10_ranks.plan");
  ASSERT_TRUE(family.ok()) << family.error().to_text();
  EXPECT_EQ(family->parts, testing::sample_pair());
  EXPECT_TRUE(family->ranks.starts_with(R"({"name":"causal_two")"));
  EXPECT_EQ(family->kernels, "");
}

}  // namespace
}  // namespace attn::plan
