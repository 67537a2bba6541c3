// What steps of attnc's own kernels say of them.
#include <gtest/gtest.h>

#include "compiler/engines/native/kernel_names.h"
#include "compiler/engines/native/programs.h"
#include "compiler/masks/mask_analysis.h"
#include "tests/support/contexts.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::native {
namespace {

constexpr const char* kSizes = "dims B = 2, Hq = 4, Hkv = 4, Sq = 1000, Skv = 1000, D = 128; ";

plan::KernelStep step_of(const std::string& clauses, bool backward, const char* sizes = kSizes) {
  const ir::Attention attention =
      masks::testing::of_spec("attention a { " + std::string(sizes) + clauses + " }");
  const masks::MaskAnalysis mask(attention, nullptr);
  const target::Context context = attn::testing::in(backward);
  const masks::Axes axes = masks::varying(mask.axes(), attention.dims);
  const auto made = NativePrograms(attention, axes, context).make().value();
  return std::get<plan::KernelStep>(made.program.steps.back());
}

// Shown scores lie in blocks that are not skipped, and full blocks show all of theirs.
TEST(KernelFacts, CountTheBlocksOfMasks) {
  for (const bool backward : {false, true}) {
    const plan::KernelStep step = step_of("mask q_idx >= kv_idx;", backward);
    const plan::KernelFacts facts = step.facts.value();
    EXPECT_EQ(facts.backward, backward);
    const plan::Launch& launch = step.launches[static_cast<std::size_t>(facts.launch)];
    EXPECT_EQ(launch.block[0], 128 * (facts.groups + 1));
    ASSERT_TRUE(facts.blocks);
    EXPECT_EQ(facts.blocks->lists, 1);
    const std::int64_t of_block = facts.tile * facts.block, shown = 1000 * 1001 / 2;
    EXPECT_LT(facts.blocks->full * of_block, shown);
    EXPECT_GT((facts.blocks->full + facts.blocks->partial) * of_block, shown);
    const auto covering = [](std::int64_t size) { return (999 + size) / size; };
    EXPECT_EQ(facts.blocks->all(), covering(facts.tile) * covering(facts.block));
    EXPECT_EQ(facts.items, 2 * 4 * covering(facts.tile));
    EXPECT_GT(facts.blocks->skipped, 0);
  }
}

TEST(KernelFacts, OfAllScores) {
  const plan::KernelFacts facts = step_of("", false).facts.value();
  EXPECT_EQ(facts.depth, 128);
  ASSERT_TRUE(facts.blocks);
  EXPECT_EQ(facts.blocks->skipped, 0);
  EXPECT_FALSE(facts.has_lengths);
  EXPECT_TRUE(step_of("lengths kv;", false).facts.value().has_lengths);
}

TEST(KernelFacts, HeadsThatDifferHaveListsOfTheirOwn) {
  const plan::KernelFacts facts =
      step_of("mask h % 2 == 0 || q_idx >= kv_idx;", false).facts.value();
  ASSERT_TRUE(facts.blocks);
  EXPECT_EQ(facts.blocks->lists, 4);
  EXPECT_TRUE(facts.lists_of_head);
  EXPECT_FALSE(facts.lists_of_batch);
  const plan::KernelFacts batches =
      step_of("mask b % 2 == 0 || q_idx >= kv_idx;", true).facts.value();
  EXPECT_TRUE(batches.lists_of_batch);
  EXPECT_FALSE(batches.lists_of_head);
}

TEST(KernelFacts, ListsThatTheGpuMakesAreNotKnown) {
  for (const bool backward : {false, true}) {
    const plan::KernelStep step =
        step_of("tensor d: i32[B, Skv]; mask d[b, kv_idx] == d[b, q_idx];", backward);
    const plan::KernelFacts facts = step.facts.value();
    EXPECT_FALSE(facts.blocks);
    EXPECT_TRUE(facts.makes_lists);
    EXPECT_GT(facts.launch, 0);
    for (const plan::Launch& launch : step.launches) {
      EXPECT_NE(what_of_launch(step, launch), "") << launch.kernel;
    }
  }
}

TEST(KernelFacts, KernelsOfLearnedTensorsAreNamed) {
  const plan::KernelStep step =
      step_of("learn t: f32[Hq, 1999]; score score + t[h, q_idx - kv_idx + 999]; grad q, t;", true);
  for (const plan::Launch& launch : step.launches) {
    EXPECT_NE(what_of_launch(step, launch), "") << launch.kernel;
  }
}

// Parts of blocks of keys are spoken of where there are some, or may be.
TEST(KernelFacts, TheLastLaunchIsSaidForThePlan) {
  const auto what = [](const std::string& clauses, const char* sizes = kSizes) {
    const plan::KernelStep step = step_of(clauses, true, sizes);
    return what_of_launch(step, step.launches.back());
  };
  const std::string converts = "dq: its f32 sums, converted";
  const char* const many = "dims B = 4, Hq = 32, Hkv = 32, Sq = 1000, Skv = 1000, D = 128; ";
  EXPECT_EQ(what("", many), converts);
  EXPECT_EQ(what("grad q;"), converts);
  for (const char* clauses : {"", "deterministic;", "mask q_idx >= kv_idx;"}) {
    EXPECT_EQ(what(clauses), converts + "; dk and dv: sums of parts") << clauses;
  }
  EXPECT_EQ(what("grad q, k;"), converts + "; dk: sums of parts");
  EXPECT_EQ(what("grad v;"), "dv: sums of parts");
  const char* const listed = "tensor t: bool[Skv]; mask t[kv_idx];";
  EXPECT_EQ(what(listed), converts) << "lists are short";
  EXPECT_EQ(what(listed, "dims B = 2, Hq = 4, Hkv = 1, Sq = 4096, Skv = 4096, D = 64; "),
            converts + "; dk and dv: sums of parts, if any");
}

}  // namespace
}  // namespace attn::engines::native
