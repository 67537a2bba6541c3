#include "tests/unit/runtime/plan/program_text.h"

#include <gtest/gtest.h>

#include "tests/support/golden.h"
#include "tests/unit/runtime/graph/sample_graphs.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

TEST(ProgramText, Sample) {
  attn::testing::expect_golden("tests/unit/runtime/plan/golden/sample.txt",
                               to_text(testing::sample_program()));
}

TEST(ProgramText, Derived) {
  attn::testing::expect_golden("tests/unit/runtime/plan/golden/derived.txt",
                               to_text(testing::derived_program()));
}

TEST(ProgramText, Controlled) {
  attn::testing::expect_golden("tests/unit/runtime/plan/golden/controlled.txt",
                               to_text(testing::controlled_program()));
}

TEST(ProgramText, SignatureOfTheSample) {
  attn::testing::expect_golden("tests/unit/runtime/plan/golden/sample_signature.txt",
                               graph::testing::in_lines(testing::sample_plan().signature.text));
}

TEST(ProgramText, RolesReadBack) {
  for (const TensorRole role :
       {TensorRole::query, TensorRole::key, TensorRole::value, TensorRole::captured,
        TensorRole::output, TensorRole::stats, TensorRole::control, TensorRole::internal,
        TensorRole::saved, TensorRole::cotangent, TensorRole::gradient}) {
    EXPECT_EQ(parse_tensor_role(to_string(role)), role);
  }
  EXPECT_EQ(parse_tensor_role("friend"), std::nullopt);
}

}  // namespace
}  // namespace attn::plan
