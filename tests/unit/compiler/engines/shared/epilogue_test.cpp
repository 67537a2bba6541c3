#include "compiler/engines/shared/epilogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::epilogue_tests {
namespace {

using ::testing::HasSubstr;

Result<plan::Program> lowered(const std::string& clauses) {
  return driver::lower(masks::testing::of_spec(
                           "attention f { dims B = 2, Hq = 4, Sq = 200, D = 64; " + clauses + " }"),
                       "native", plan::Direction::backward);
}

// Kernels store a sum for each index of o, also where a condition says that none is read.
TEST(Epilogues, HaveNoGradientsBeyondATensor) {
  for (const char* clauses :
       {"learn g: f32[D // 2]; epilogue o * where(d_idx < D // 2, g[d_idx], 1);",
        "learn g: bf16[B, Hq, Sq, 32]; gate where(d_idx < 32, g[b, h, q_idx, d_idx], 1);",
        "learn g: f32[B, Hq, Sq]; gate where(q_idx + 1 < Sq, g[b, h, q_idx + 1], 1);",
        "learn g: f32[2]; epilogue o + where(h < 2, g[h], 0);"}) {
    const auto program = lowered(clauses);
    ASSERT_FALSE(program.ok()) << clauses;
    EXPECT_EQ(program.error().code, ErrorCode::unsupported);
    EXPECT_THAT(program.error().to_text(),
                HasSubstr("a condition guards indexes of it that are out of range"));
  }
}

TEST(Epilogues, HaveGradientsOfPartsOfATensor) {
  for (const char* clauses : {"learn g: f32[2 * D]; epilogue o * g[d_idx + D];",
                              "learn g: f32[Hq + 2]; gate where(d_idx < 32, g[h + 2], 1);",
                              "learn g: bf16[3, Sq]; epilogue o + g[2, q_idx];"}) {
    const auto program = lowered(clauses);
    EXPECT_TRUE(program.ok()) << clauses << program.error().to_text();
  }
}

}  // namespace
}  // namespace attn::engines::epilogue_tests
