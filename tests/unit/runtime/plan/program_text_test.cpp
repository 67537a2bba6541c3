#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/golden.h"
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

// The program, which is one line of the text, is indented here.
TEST(ProgramText, SignatureOfTheSample) {
  const std::string text = testing::sample_plan().signature.text;
  const std::size_t program = text.find("program ") + std::string("program ").size();
  attn::testing::expect_golden(
      "tests/unit/runtime/plan/golden/sample_signature.txt",
      text.substr(0, program) + nlohmann::ordered_json::parse(text.substr(program)).dump(1) + "\n");
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
