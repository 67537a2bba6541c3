// Which smaller sizes a plan may serve. Needs no cuDNN.
#include "compiler/driver/shape.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attn::driver {
namespace {

using plan::Dim;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

plan::Shape shape_of_text(const std::string& text, const sema::Bindings& bindings = {}) {
  const support::Source source("x.attn", text);
  diag::Sink sink(source);
  const auto attention = front_end(source, bindings, sink);
  EXPECT_TRUE(attention.has_value()) << diag::to_text(sink);
  const auto program = lower(*attention, "cudnn");
  EXPECT_TRUE(program.ok()) << program.error().to_text();
  return shape_of(*attention, paddable_dims(source, bindings, *attention), *program);
}

// What may be smaller of an attention with these clauses.
std::vector<Dim> padded(const std::string& clauses,
                        const std::string& dims = "B = 4, Hq = 4, Sq = 64, Skv = 128, D = 64") {
  return shape_of_text(fmt::format("attention x {{ dims {}; {} }}", dims, clauses)).padded;
}

TEST(Shape, HasTheSizesThatBindingsGive) {
  const plan::Shape shape = shape_of_text(
      "attention x(w = 8) { dims B = 1, Hq = 4, Hkv = 2, Sq = {16, 32}, D = 64; "
      "mask q_idx - kv_idx < w; }",
      {{"Sq", "32"}, {"Dv", "128"}});
  EXPECT_EQ(shape.sizes, (plan::Sizes{{Dim::B, 1},
                                      {Dim::Hq, 4},
                                      {Dim::Hkv, 2},
                                      {Dim::Sq, 32},
                                      {Dim::Skv, 32},
                                      {Dim::Dqk, 64},
                                      {Dim::Dv, 128}}));
  EXPECT_THAT(shape.padded, IsEmpty());
}

TEST(Shape, LengthsPad) {
  EXPECT_THAT(padded("mask q_idx >= kv_idx;"), IsEmpty());
  EXPECT_THAT(padded("lengths q, kv;"), ElementsAre(Dim::B, Dim::Sq, Dim::Skv));
  EXPECT_THAT(padded("lengths kv;"), ElementsAre(Dim::B, Dim::Skv));
  EXPECT_THAT(padded("lengths q;"), ElementsAre(Dim::B, Dim::Sq));
  EXPECT_THAT(padded("layout thd; mask q_idx >= kv_idx;"), ElementsAre(Dim::B, Dim::Sq, Dim::Skv));
  EXPECT_THAT(padded("layout k: paged(page = 16), v: paged(page = 16); lengths kv;"),
              ElementsAre(Dim::B, Dim::Skv));
  EXPECT_THAT(padded("layout k: paged(page = 16), v: paged(page = 16);"), IsEmpty());
}

TEST(Shape, ASizeThatAnExpressionReadsIsFixed) {
  const std::string both = "lengths q, kv; ";
  EXPECT_THAT(padded(both + "score score + kv_idx / Skv;"), ElementsAre(Dim::B, Dim::Sq));
  EXPECT_THAT(padded(both + "mask kv_idx < Skv // 2;"), ElementsAre(Dim::B, Dim::Sq));
  EXPECT_THAT(padded(both + "scale 1 / sqrt(Sq);"), ElementsAre(Dim::B, Dim::Skv));
  EXPECT_THAT(padded(both + "let half = B // 2; score where(b < half, score, 0);"),
              ElementsAre(Dim::Sq, Dim::Skv));
  EXPECT_THAT(padded(both + "learn s: f32[Hq]; sink s[h];"),
              ElementsAre(Dim::B, Dim::Sq, Dim::Skv));
  EXPECT_THAT(padded(both + "tensor keep: bool[Sq, Skv]; dropout 0.5, keep[Sq - 1 - q_idx, 0];"),
              ElementsAre(Dim::B, Dim::Skv));
}

TEST(Shape, ADiagonalAtTheEndIsThatOfLengths) {
  const std::string causal = " align bottom_right; mask q_idx >= kv_idx;";
  EXPECT_THAT(padded("lengths q, kv;" + causal), ElementsAre(Dim::B, Dim::Sq, Dim::Skv));
  EXPECT_THAT(padded("lengths kv;" + causal), ElementsAre(Dim::B, Dim::Skv));
  EXPECT_THAT(padded("lengths q;" + causal), ElementsAre(Dim::B, Dim::Sq));
}

TEST(Shape, OneSizeMayFollowFromAnother) {
  const char* const clauses = "lengths q, kv;";
  EXPECT_THAT(padded(clauses, "B = 4, Hq = 4, Sq = 64, Skv = 2 * Sq, D = 64"),
              ElementsAre(Dim::B, Dim::Sq, Dim::Skv));
  EXPECT_THAT(padded(clauses, "B = 4, Hq = B, Sq = 64, D = 64"), IsEmpty())
      << "with another B there would be other heads";
  EXPECT_THAT(padded("layout q: strides(Sq * 256, 64, 256, 1); lengths q, kv;"), IsEmpty());
}

TEST(Shape, TensorsHaveRoomForWhatIsSmaller) {
  const std::string both = "lengths q, kv; ";
  EXPECT_THAT(padded(both + "tensor t: f32[2 * Sq + Skv // 4]; score score + t[q_idx];"),
              ElementsAre(Dim::B, Dim::Sq, Dim::Skv));
  EXPECT_THAT(padded(both + "tensor t: f32[200 - Sq]; score score + t[q_idx % 8];"), IsEmpty());
  EXPECT_THAT(padded(both + "tensor t: i32[B, Skv]; mask t[b, q_idx] == t[b, kv_idx];"),
              ElementsAre(Dim::B, Dim::Sq, Dim::Skv));
}

KnownSizes known(const std::string& dims, const sema::Bindings& bindings = {}) {
  return known_sizes({"x.attn", fmt::format("attention x {{ {} }}", dims)}, bindings);
}

const std::vector<std::int64_t>& sizes_of(const KnownSizes& known, ir::Dim dim) {
  return known.of[static_cast<std::size_t>(dim)];
}

TEST(KnownSizes, AreThoseOfAllPlans) {
  const KnownSizes sizes = known("dims B = 1, Hq = 8, Sq = {16, 32}, Skv = 64, D = 32;");
  EXPECT_THAT(sizes_of(sizes, ir::Dim::Sq), ElementsAre(16, 32));
  EXPECT_THAT(sizes_of(sizes, ir::Dim::Skv), ElementsAre(64));
  EXPECT_THAT(sizes_of(sizes, ir::Dim::Dv), ElementsAre(32));
  EXPECT_THAT(sizes.open, IsEmpty());
  EXPECT_THAT(sizes_of(known("dims B, Hq = 8, Sq = 16, D = 32;", {{"B", "3"}}), ir::Dim::B),
              ElementsAre(3));
}

TEST(KnownSizes, OpenOnesDoNotFollowFromOthers) {
  EXPECT_THAT(known("").open, ElementsAre("B", "Hq", "Sq", "D"));
  EXPECT_THAT(known("dims Skv = 2 * Sq, Dqk = 64;").open, ElementsAre("B", "Hq", "Sq"));
  EXPECT_THAT(known("dims B = 1, Hq = 4, Sq = 8, Dv = 64;").open, ElementsAre("Dqk"));
}

TEST(KnownSizes, AreAlignedIfSkvIsAnySq) {
  EXPECT_TRUE(known("").aligned);
  EXPECT_TRUE(known("dims Skv = Sq;").aligned);
  EXPECT_TRUE(known("dims Sq = 64;").aligned);  // which a binding replaces
  EXPECT_FALSE(known("dims Sq = 64, Skv = 64;").aligned);
  EXPECT_FALSE(known("dims Skv = 2 * Sq;").aligned);
  EXPECT_FALSE(known("dims Skv = Sq + 1;").aligned);
  EXPECT_FALSE(known("dims Skv = Sq // 16 * 16;").aligned);
}

TEST(KnownSizes, TheGroupIsThatOfAnyNumberOfHeads) {
  EXPECT_EQ(known("").group, 1);
  EXPECT_EQ(known("dims Hkv = Hq // 5;").group, 5);
  EXPECT_EQ(known("dims Hq = 8, Hkv = Hq // 4;").group, 4);
  EXPECT_EQ(known("dims Hq = 8, Hkv = 2;").group, 4);
  EXPECT_EQ(known("dims Hkv = 2;").group, std::nullopt);
  EXPECT_EQ(known("dims Hkv = min(Hq, 4);").group, std::nullopt);
}

}  // namespace
}  // namespace attn::driver
