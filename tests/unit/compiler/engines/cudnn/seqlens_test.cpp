// When masks become lengths, and what their programs are like.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "compiler/driver/driver.h"
#include "compiler/planner/search.h"
#include "runtime/base/check.h"

namespace attn::engines::seqlens_tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kSizes = "dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = Sq, D = 128; ";
constexpr const char* kGiven = "tensor n: i32[B]; tensor of: i32[9]; tensor t: f32[100]; ";

ir::Attention attention_of(const std::string& clauses) {
  const support::Source source("f.attn", "attention f { " + (kSizes + (kGiven + clauses)) + " }");
  diag::Sink sink(source);
  std::optional<ir::Attention> attention = driver::front_end(source, {}, sink);
  ATTN_CHECK(attention.has_value(), diag::to_text(sink));
  return *attention;
}

std::string first(const std::string& clauses, plan::Direction direction) {
  planner::Search search(attention_of(clauses), "cudnn", {.direction = direction});
  return std::string(search.next().value()->strategy->name);
}

TEST(LengthsOfMasks, AreTakenBeforeMasksForEachScore) {
  for (const auto direction : {plan::Direction::forward, plan::Direction::backward}) {
    EXPECT_EQ(first("mask kv_idx < n[b];", direction), "seqlens");
    EXPECT_EQ(first("mask q_idx >= kv_idx && kv_idx < n[b] && q_idx < n[b];", direction),
              "seqlens");
    EXPECT_EQ(first("mask q_idx >= kv_idx;", direction), "composite");
    EXPECT_EQ(first("mask kv_idx < 1000;", direction), "parts");
    EXPECT_EQ(first("mask abs(kv_idx - 1000) < 500;", direction), "parts");
  }
}

std::vector<std::string> derived(const plan::Program& program) {
  std::vector<std::string> expressions;
  for (const plan::Step& step : program.steps) {
    const auto* made = std::get_if<plan::DeriveStep>(&step);
    if (made == nullptr) continue;
    expressions.insert(expressions.end(), made->expressions.begin(), made->expressions.end());
  }
  return expressions;
}

// The kernel compares rows in a way that cuDNN does not take for padding.
TEST(LengthsOfMasks, RowsAndColumnsAreBothComparedInAKernel) {
  for (const char* mask : {"mask q_idx < n[b] && kv_idx < n[b];", "mask n[b] > q_idx;",
                           "mask kv_idx < n[b] || q_idx >= kv_idx;"}) {
    for (const char* lowering : {"composite", "unified"}) {
      const auto program = driver::lower(attention_of(mask), lowering);
      ASSERT_TRUE(program.ok()) << program.error().to_text();
      EXPECT_TRUE(derived(*program).empty()) << mask << " " << lowering;
    }
  }
}

// What cuDNN cannot compute is a vector, and no more.
TEST(LengthsOfMasks, AreVectorsWhereTheyAreGathered) {
  const auto program =
      driver::lower(attention_of("param m: i32; mask q_idx < of[h % 9] || m > kv_idx;"), "cudnn");
  ASSERT_TRUE(program.ok()) << program.error().to_text();
  EXPECT_THAT(derived(*program), ElementsAre("q_idx < of[h % 9]"));
}

TEST(LengthsOfMasks, AreMadeBeforeAnythingElse) {
  for (const auto direction : {plan::Direction::forward, plan::Direction::backward}) {
    const auto program = driver::lower(attention_of("mask kv_idx < n[b] && q_idx < 2 * n[b];"),
                                       "seqlens", direction);
    ASSERT_TRUE(program.ok()) << program.error().to_text();
    const auto* made = std::get_if<plan::DeriveStep>(&program->steps.front());
    ASSERT_NE(made, nullptr);
    EXPECT_THAT(made->outputs, ElementsAre("lengths_q", "lengths_kv"));
    EXPECT_FALSE(made->once);
    for (const plan::TensorInfo& tensor : program->tensors) {
      EXPECT_THAT(tensor.name, ::testing::Not(HasSubstr("lengths")));
    }
  }
}

std::string refusal(const std::string& clauses) {
  const auto program = driver::lower(attention_of(clauses), "seqlens");
  return program.ok() ? "" : program.error().message;
}

TEST(LengthsOfMasks, AreRefusedWhereThereAreNoneOrScoresAreChecked) {
  EXPECT_THAT(refusal("mask kv_idx < 5;"), HasSubstr("no mask ends batches"));
  EXPECT_THAT(refusal("score score + t[n[b]]; mask kv_idx < n[b];"), HasSubstr("checked"));
}

TEST(LengthsOfMasks, AreCheckedWhereTheyGather) {
  const auto plain = driver::lower(attention_of("mask kv_idx < n[b];"), "seqlens");
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->check.has_value());
  const auto gathers = driver::lower(attention_of("mask kv_idx < of[n[b]];"), "seqlens");
  ASSERT_TRUE(gathers.ok());
  ASSERT_TRUE(gathers->check.has_value());
  EXPECT_EQ(gathers->check->faults.front().expression, "of[n[b]]");
}

}  // namespace
}  // namespace attn::engines::seqlens_tests
