// Plan files of every released format version must still load. tests/compat has one of each; they
// are never rewritten.
#include <gtest/gtest.h>

#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

TEST(Compatibility, Version1StillLoads) {
  const Result<Plan> plan = load(ATTN_SOURCE_DIR "/tests/compat/v1.plan");
  ASSERT_TRUE(plan.ok()) << plan.error().to_text();
  EXPECT_EQ(*plan, testing::sample_plan());
}

TEST(Compatibility, Version4StillLoads) {
  const Result<Plan> plan = load(ATTN_SOURCE_DIR "/tests/compat/v4.plan");
  ASSERT_TRUE(plan.ok()) << plan.error().to_text();
  EXPECT_EQ(*plan, testing::shaped_plan());
}

TEST(Compatibility, Version5StillLoads) {
  const Result<Plan> plan = load(ATTN_SOURCE_DIR "/tests/compat/v5.plan");
  ASSERT_TRUE(plan.ok()) << plan.error().to_text();
  EXPECT_EQ(*plan, testing::chosen_plan());
}

TEST(Compatibility, Version7StillLoads) {
  const Result<Plan> plan = load(ATTN_SOURCE_DIR "/tests/compat/v7.plan");
  ASSERT_TRUE(plan.ok()) << plan.error().to_text();
  EXPECT_EQ(*plan, testing::divided_plan());
}

TEST(Compatibility, Version6StillLoads) {
  const Result<Plan> plan = load(ATTN_SOURCE_DIR "/tests/compat/v6.plan");
  ASSERT_TRUE(plan.ok()) << plan.error().to_text();
  EXPECT_EQ(*plan, testing::looping_plan());
}

}  // namespace
}  // namespace attn::plan
