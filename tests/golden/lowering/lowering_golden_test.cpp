// Every spec that ships, as the program it lowers to.
#include <gtest/gtest.h>

#include "tests/golden/lowering/specs.h"
#include "tests/support/golden.h"

namespace attn::testing {
namespace {

class LoweringGolden : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(LoweringGolden, Program) {
  const plan::Program program = lowered_spec(GetParam());
  ASSERT_FALSE(program.steps.empty());
  expect_golden("tests/golden/lowering/" + GetParam().stem().string() + ".expected",
                plan::to_text(program));
}

TEST_P(LoweringGolden, LoweringAgainGivesTheSameProgram) {
  EXPECT_EQ(plan::canonical_text(lowered_spec(GetParam())),
            plan::canonical_text(lowered_spec(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Specs, LoweringGolden, ::testing::ValuesIn(spec_files("specs")),
                         [](const auto& spec) { return spec.param.stem().string(); });

}  // namespace
}  // namespace attn::testing
