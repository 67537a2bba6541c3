#include "runtime/plan/step_tensors.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

using ::testing::UnorderedElementsAre;

std::multiset<std::string> names_in(Step step) {
  std::multiset<std::string> names;
  change_tensors(step, [&names](TensorOperand& tensor) { names.insert(tensor.name); });
  return names;
}

TEST(StepTensors, AreFoundInEveryKindOfStep) {
  EXPECT_THAT(names_in(testing::sample_program().steps[0]),
              UnorderedElementsAre("q", "k", "lse", "v", "o"));
  EXPECT_THAT(names_in(testing::derived_program().steps[1]),
              UnorderedElementsAre("bias", "table", "places"));
  EXPECT_THAT(names_in(testing::kernel_program().steps[0]),
              UnorderedElementsAre("partial", "o", "lse", "counter", "q", "counter", "partial",
                                   "partial", "o", "lse"));
  EXPECT_THAT(
      names_in(testing::bound_program().steps[0]),
      UnorderedElementsAre("o", "q", "q", "k", "v", "v", "page_table", "page_table", "o", "o"));
}

TEST(StepTensors, AreUsedByEveryKindOfStep) {
  const Step steps[] = {testing::sample_program().steps[0], testing::derived_program().steps[1],
                        testing::kernel_program().steps[0]};
  for (const Step& step : steps) {
    for (const std::string& name : names_in(step)) EXPECT_TRUE(uses(step, name)) << name;
    EXPECT_FALSE(uses(step, "x"));
  }
}

TEST(StepTensors, ChangedNamesStay) {
  for (Program program : {testing::kernel_program(), testing::scheduled_program()}) {
    for (auto* tensors : {&program.tensors, &program.internals}) {
      for (TensorInfo& tensor : *tensors) tensor.name = "my " + tensor.name;
    }
    change_tensors(program.steps[0],
                   [](TensorOperand& tensor) { tensor.name = "my " + tensor.name; });
    EXPECT_TRUE(validate(program).ok()) << validate(program).error().message;
  }
}

}  // namespace
}  // namespace attn::plan
