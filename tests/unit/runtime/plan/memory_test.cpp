#include "runtime/plan/memory.h"

#include <gtest/gtest.h>

#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

TEST(Memory, IsTheWorkspaceAndWhatIsMadeOnLoad) {
  const Plan plan = testing::derived_plan();
  const Memory memory = memory_of(plan);
  EXPECT_EQ(memory.cudnn, 4096);
  EXPECT_EQ(memory.between, 256);  // bias
  EXPECT_EQ(memory.once, 256);     // places
  EXPECT_EQ(memory.iota, 0);
  EXPECT_EQ(memory.total(), plan.workspace_bytes() + 256);
  EXPECT_EQ(memory_of(plan.program).total(), 256 + 256);
}

TEST(Memory, OfASingleStepIsTheStepsToTheByte) {
  Plan plan = testing::sample_plan();
  plan.compiled[0].workspace_bytes = 1;
  EXPECT_EQ(memory_of(plan).total(), plan.workspace_bytes());
  plan.program.internals.clear();
  EXPECT_EQ(memory_of(plan).cudnn, 1);
}

}  // namespace
}  // namespace attn::plan
