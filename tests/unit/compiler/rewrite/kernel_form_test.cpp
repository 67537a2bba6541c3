#include <gtest/gtest.h>

#include <random>

#include "compiler/masks/mask_analysis.h"
#include "compiler/rewrite/pass.h"
#include "tests/support/contexts.h"
#include "tests/support/random_spec.h"
#include "tests/unit/compiler/masks/dense.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::rewrite {
namespace {

masks::MaskForm form_of(const ir::Attention& attention) {
  return masks::analyzed(attention, {})->form();
}

using masks::testing::masks_of;
using masks::testing::of_clauses;

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
  EXPECT_EQ(form_of(kernel_form(chunks, attn::testing::in(true))).band, masks::Band{});
  EXPECT_NE(form_of(kernel_form(chunks, attn::testing::in(false))).band, masks::Band{});
}

TEST(KernelForm, WhatNeedsNoChangeStays) {
  const ir::Attention causal = of_clauses(64, 64, "mask q_idx >= kv_idx;");
  EXPECT_EQ(ir::to_text(kernel_form(causal, attn::testing::in(false))), ir::to_text(causal));
  const ir::Attention open = masks::testing::of_spec(
      "attention a { dims B = 1, Hq = 1, Hkv = 1, D = 8; mask q_idx // 8 == kv_idx // 8; }");
  EXPECT_EQ(ir::to_text(kernel_form(open, attn::testing::in(false))), ir::to_text(open));
}

TEST(KernelForm, EachRewriteIsMadeOrNot) {
  const ir::Attention chunks =
      of_clauses(256, 256, "mask q_idx // 32 == kv_idx // 32 && q_idx // 64 == kv_idx // 64;");
  const std::string all = ir::to_text(kernel_form(chunks, attn::testing::in(false)));
  for (const char* name : {"bounding_band", "redundant", "reals"}) {
    EXPECT_NE(ir::to_text(kernel_form(chunks, attn::testing::in(false, target::without(name)))),
              all)
        << name;
  }
  EXPECT_EQ(
      form_of(kernel_form(chunks, attn::testing::in(false, target::without("bounding_band")))).band,
      masks::Band{});
  const ir::Attention bare = kernel_form(
      chunks, attn::testing::in(
                  false, target::without("bounding_band",
                                         target::without("redundant", target::without("reals")))));
  EXPECT_EQ(ir::to_text(bare), ir::to_text(chunks));
}

TEST(Rewrites, AreAllMadeUnlessSwitchedOff) {
  for (const target::Rewrite& rewrite : target::rewrites()) {
    EXPECT_TRUE(target::Rewrites().*rewrite.made) << rewrite.name;
    const target::Rewrites others = target::without(rewrite.name);
    for (const target::Rewrite& other : target::rewrites()) {
      EXPECT_EQ(others.*other.made, other.name != rewrite.name) << other.name;
    }
  }
}

TEST(KernelForm, OfRandomSpecsShowsTheSame) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = attn::testing::random_spec(seed, 24);
    ir::Attention attention = masks::testing::of_spec(text);
    if (text.find("h %") != std::string::npos) continue;  // dense.h does not support heads
    const std::vector<bool> wanted = masks::testing::shown(attention);
    for (const bool backward : {false, true}) {
      const ir::Attention form = kernel_form(attention, attn::testing::in(backward));
      ASSERT_TRUE(ir::verify(form).ok());
      ASSERT_EQ(masks::testing::shown(form), wanted) << text;
    }
  }
}

}  // namespace
}  // namespace attn::rewrite
