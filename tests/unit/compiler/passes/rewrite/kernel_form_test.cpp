#include "compiler/passes/rewrite/kernel_form.h"

#include <gtest/gtest.h>

#include <random>

#include "compiler/passes/analysis/mask_analysis.h"
#include "tests/support/contexts.h"
#include "tests/support/random_spec.h"
#include "tests/unit/compiler/passes/dense.h"
#include "tests/unit/compiler/passes/spec_example.h"

namespace attn::passes {
namespace {

MaskForm form_of(const ir::Attention& attention) { return analyzed(attention, {})->form(); }

using testing::masks_of;
using testing::of_clauses;

TEST(KernelForm, ABandIsAddedAndWhatItImpliesGoes) {
  const ir::Attention chunks =
      of_clauses(256, 256, "mask q_idx // 32 == kv_idx // 32 && q_idx >= kv_idx;");
  const ir::Attention form = kernel_form(chunks, attn::testing::in(false));
  EXPECT_EQ(form_of(form).band.right, 0);
  EXPECT_EQ(form_of(form).band.left, 31);
  EXPECT_EQ(masks_of(form).find("//"), std::string::npos) << masks_of(form);
}

TEST(KernelForm, ABackwardHasNoBandThatItCannotSkipBy) {
  const ir::Attention chunks = of_clauses(256, 256, "mask q_idx // 32 == kv_idx // 32;");
  EXPECT_EQ(form_of(kernel_form(chunks, attn::testing::in(true))).band, Band{});
  EXPECT_NE(form_of(kernel_form(chunks, attn::testing::in(false))).band, Band{});
}

TEST(KernelForm, WhatNeedsNoChangeStays) {
  const ir::Attention causal = of_clauses(64, 64, "mask q_idx >= kv_idx;");
  EXPECT_EQ(ir::to_text(kernel_form(causal, attn::testing::in(false))), ir::to_text(causal));
  const ir::Attention open = testing::of_spec(
      "attention a { dims B = 1, Hq = 1, Hkv = 1, D = 8; mask q_idx // 8 == kv_idx // 8; }");
  EXPECT_EQ(ir::to_text(kernel_form(open, attn::testing::in(false))), ir::to_text(open));
}

TEST(KernelForm, EachRewriteIsMadeOrNot) {
  const ir::Attention chunks =
      of_clauses(256, 256, "mask q_idx // 32 == kv_idx // 32 && q_idx // 64 == kv_idx // 64;");
  const std::string all = ir::to_text(kernel_form(chunks, attn::testing::in(false)));
  for (const char* name : {"bounding_band", "redundant", "reals"}) {
    EXPECT_NE(ir::to_text(kernel_form(chunks, attn::testing::in(false, planning::without(name)))),
              all)
        << name;
  }
  EXPECT_EQ(
      form_of(kernel_form(chunks, attn::testing::in(false, planning::without("bounding_band"))))
          .band,
      Band{});
  const ir::Attention bare = kernel_form(
      chunks,
      attn::testing::in(
          false, planning::without("bounding_band",
                                   planning::without("redundant", planning::without("reals")))));
  EXPECT_EQ(ir::to_text(bare), ir::to_text(chunks));
}

TEST(Rewrites, AreAllMadeUnlessSwitchedOff) {
  for (const planning::Rewrite& rewrite : planning::rewrites()) {
    EXPECT_TRUE(planning::Rewrites().*rewrite.made) << rewrite.name;
    const planning::Rewrites others = planning::without(rewrite.name);
    for (const planning::Rewrite& other : planning::rewrites()) {
      EXPECT_EQ(others.*other.made, other.name != rewrite.name) << other.name;
    }
  }
}

TEST(KernelForm, OfRandomSpecsShowsTheSame) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = attn::testing::random_spec(seed, 24);
    ir::Attention attention = testing::of_spec(text);
    if (text.find("h %") != std::string::npos) continue;  // dense.h does not support heads
    const std::vector<bool> wanted = testing::shown(attention);
    for (const bool backward : {false, true}) {
      const ir::Attention form = kernel_form(attention, attn::testing::in(backward));
      ASSERT_TRUE(ir::verify(form).ok());
      ASSERT_EQ(testing::shown(form), wanted) << text;
    }
  }
}

}  // namespace
}  // namespace attn::passes
