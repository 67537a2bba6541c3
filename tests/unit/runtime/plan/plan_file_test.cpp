#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "runtime/plan/container.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

TEST(PlanFile, EveryRandomPlanComesBackWhole) {
  testing::Random random(21);
  for (int round = 0; round < 60; ++round) {
    const Plan plan = testing::random_plan(random);
    const std::string bytes = serialize(plan);
    const Result<Plan> back = deserialize(bytes);
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_EQ(*back, plan);
    ASSERT_EQ(serialize(*back), bytes);
  }
}

TEST(PlanFile, EverySampleComesBackWhole) {
  for (const Plan& plan : testing::sample_plans()) {
    const std::string bytes = serialize(plan);
    EXPECT_EQ(bytes[8], kFormatVersion);
    const Result<Plan> back = deserialize(bytes, direction_of(plan.program));
    ASSERT_TRUE(back.ok()) << back.error().to_text();
    EXPECT_EQ(*back, plan);
    if (plan.kernels.empty()) continue;
    Plan other = plan;
    other.kernels.back() += "x";
    EXPECT_NE(serialize(other), bytes);
  }
}

TEST(PlanFile, TheSamePlanGivesTheSameBytes) {
  EXPECT_EQ(serialize(testing::sample_plan()), serialize(testing::sample_plan()));
}

TEST(PlanFile, AnyDifferenceInAPlanGivesOtherBytes) {
  const std::string original = serialize(testing::sample_plan());
  const std::function<void(Plan&)> changes[] = {
      [](auto& p) { p.spec_name += "x"; },
      [](auto& p) { p.spec_text += "x"; },
      [](auto& p) { p.bindings.emplace("C", ""); },
      [](auto& p) { p.bindings["B"] += "3"; },
      [](auto& p) { p.target.sm += 1; },
      [](auto& p) { p.cudnn_version += 1; },
      [](auto& p) { p.compiled[0].heuristic += "x"; },
      [](auto& p) { p.compiled[0].engine += 1; },
      [](auto& p) { p.compiled[0].knobs.pop_back(); },
      [](auto& p) { p.compiled[0].knobs[0].type += 1; },
      [](auto& p) { p.compiled[0].knobs[0].value += 1; },
      [](auto& p) { p.compiled[0].workspace_bytes += 1; },
      [](auto& p) { p.compiled[0].cudnn_plan += "x"; },
  };
  for (std::size_t i = 0; const auto& change : changes) {
    Plan plan = testing::sample_plan();
    change(plan);
    plan = testing::signed_again(plan);
    const std::string bytes = serialize(plan);
    EXPECT_NE(bytes, original) << i;
    const Result<Plan> back = deserialize(bytes);
    ASSERT_TRUE(back.ok()) << i << ' ' << back.error().message;
    EXPECT_EQ(*back, plan) << i;
    ++i;
  }
}

TEST(PlanFile, PacksTheKernels) {
  Plan plan = testing::sample_plan();
  plan.compiled[0].cudnn_plan.assign(std::size_t{1} << 20, 'k');
  const std::string bytes = serialize(plan);
  EXPECT_LT(bytes.size(), 20000U);
  EXPECT_EQ(*deserialize(bytes), plan);
}

TEST(PlanFile, TheManifestCanBeReadInTheFile) {
  const Plan plan = testing::sample_plan();
  EXPECT_NE(serialize(plan).find(manifest_json(plan)), std::string::npos);
}

TEST(PlanFile, InternalTensorsOutliveTheirStepInTheWorkspace) {
  Plan plan = testing::derived_plan();
  EXPECT_EQ(plan.compiled[0].workspace_bytes, 4096);
  EXPECT_EQ(plan.workspace_bytes(), 4096 + 256);  // bias; places is computed at load, elsewhere
  plan.compiled[0].workspace_bytes = 1;
  EXPECT_EQ(plan.workspace_bytes(), 256 + 256);
  const InternalPlaces once = internal_places(plan.program, true);
  EXPECT_EQ(once.offsets, (std::map<std::string, std::int64_t>{{"places", 0}}));
  EXPECT_EQ(once.bytes, 256);
}

TEST(PlanFile, AWorkspaceIsTheLargestOfTheSteps) {
  Plan plan;
  EXPECT_EQ(plan.workspace_bytes(), 0);
  plan.compiled.resize(3);
  plan.compiled[1].workspace_bytes = 7;
  plan.compiled[2].workspace_bytes = 5;
  EXPECT_EQ(plan.workspace_bytes(), 7);
}

}  // namespace
}  // namespace attn::plan
