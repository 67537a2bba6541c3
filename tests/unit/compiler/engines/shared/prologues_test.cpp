#include "compiler/engines/shared/prologues.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/codegen/prologues.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::prologues_tests {
namespace {

using plan::Direction;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<plan::Program> lowered(const std::string& clauses, Direction direction,
                              const char* engine = "native") {
  return driver::lower(
      masks::testing::of_spec("attention f { dims B = 2, Hq = 4, Hkv = 2, Sq = 200, D = 64; " +
                              clauses + " }"),
      engine, direction);
}

std::vector<std::string> bound(const plan::Program& program) {
  std::vector<std::string> names;
  for (const plan::TensorInfo& tensor : program.tensors) names.push_back(tensor.name);
  return names;
}

std::string first_kernel(const plan::Step& step) {
  return std::get<plan::KernelStep>(step).launches.front().kernel;
}

constexpr const char* kBoth =
    "learn w: f32[D]; layout sbhd; prologue q: x[d_idx] * rsqrt(sum(x[d_idx] ** 2)) * w[d_idx];"
    "prologue k: x[D - 1 - d_idx]; mask q_idx >= kv_idx; outputs o, lse;";

TEST(Prologues, AreComputedInOneLaunchBefore) {
  for (const char* engine : {"native", "cudnn", "unfused"}) {
    const auto program = lowered(kBoth, Direction::forward, engine);
    ASSERT_TRUE(program.ok()) << program.error().to_text();
    EXPECT_THAT(bound(*program), ElementsAre("q", "k", "v", "w", "o", "lse"));
    EXPECT_EQ(first_kernel(program->steps.front()), codegen::kProloguesKernel);
    EXPECT_EQ(program->tensors[0].strides, (std::vector<std::int64_t>{256, 64, 512, 1}));
  }
}

TEST(Prologues, HaveGradientsAfter) {
  for (const char* engine : {"native", "cudnn", "unfused"}) {
    const auto program = lowered(kBoth, Direction::backward, engine);
    ASSERT_TRUE(program.ok()) << program.error().to_text();
    EXPECT_THAT(bound(*program),
                ElementsAre("q", "k", "v", "w", "o", "lse", "do", "dq", "dk", "dv", "d_w"));
    EXPECT_TRUE(std::ranges::any_of(program->steps, [](const plan::Step& step) {
      return std::holds_alternative<plan::KernelStep>(step) &&
             first_kernel(step) == codegen::kPrologueGradientsKernel;
    }));
  }
}

TEST(Prologues, NeedNoGradientOfTheirRows) {
  const auto program = lowered(std::string(kBoth) + "grad v, w;", Direction::backward);
  ASSERT_TRUE(program.ok()) << program.error().to_text();
  EXPECT_THAT(bound(*program), ElementsAre("q", "k", "v", "w", "o", "lse", "do", "dv", "d_w"));
}

std::string refusal(const std::string& clauses) {
  const auto program = lowered(clauses, Direction::forward);
  return program.ok() ? "" : program.error().to_text();
}

TEST(Prologues, AreRefusedWhereRowsAreElsewhere) {
  EXPECT_THAT(refusal("layout thd; prologue q: x[d_idx] * 2;"), HasSubstr("are packed"));
  EXPECT_THAT(refusal("layout k: paged(page = 64), v: paged(page = 64); prologue k: x[d_idx] * 2;"),
              HasSubstr("are in pages"));
  EXPECT_THAT(refusal("layout packed_kv; prologue k: x[d_idx] * 2;"),
              HasSubstr("are parts of one"));
  EXPECT_EQ(refusal("layout k: paged(page = 64), v: paged(page = 64); prologue q: x[d_idx] * 2;"),
            "");
}

TEST(Prologues, HaveRowsThatSharedMemoryHolds) {
  const ir::Attention wide = masks::testing::of_spec(
      "attention f { dims B = 1, Hq = 1, Sq = 64, D = 576; prologue q: x[d_idx] * 2; }");
  EXPECT_TRUE(check_prologues(wide, false).ok());
  EXPECT_THAT(check_prologues(wide, true).error().message, HasSubstr("up to 512 elements"));
}

TEST(Prologues, AreRefusedWhereAnIndexMayBeOutOfRange) {
  EXPECT_THAT(refusal("prologue q: where(d_idx < D - 1, x[d_idx + 1], 0);"),
              HasSubstr("the prologue of `q` may have no value"));
  EXPECT_EQ(refusal("prologue q: where(d_idx < D - 1, x[(d_idx + 1) % D], 0);"), "");
}

}  // namespace
}  // namespace attn::engines::prologues_tests
