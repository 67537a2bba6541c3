#include "runtime/picker/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/picker/picker_testing.h"

namespace attn::picker {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "exact 1", "bucket 0", "none", or the code of the error.
std::string choice(const std::vector<plan::Shape>& shapes, const Sizes& wanted,
                   bool buckets = true) {
  const auto chosen = choose(shapes, wanted, buckets);
  if (!chosen.ok()) return std::string(to_string(chosen.error().code));
  if (!*chosen) return "none";
  return ((*chosen)->exact ? "exact " : "bucket ") + std::to_string((*chosen)->index);
}

TEST(Choose, ThePlanOfTheSizesComesFirst) {
  const std::vector shapes = {shape_of(8, 64, 64), shape_of(4, 64, 64), shape_of(4, 32, 64)};
  EXPECT_EQ(choice(shapes, sizes(4, 64, 64)), "exact 1");
  EXPECT_EQ(choice(shapes, sizes(4, 32, 64)), "exact 2");
  EXPECT_EQ(choice(shapes, {{Dim::B, 8}}), "exact 0") << "the others are what the plan has";
  EXPECT_EQ(choice(shapes, {{Dim::B, 9}}), "none");
  EXPECT_EQ(choice({shape_of(8, 64, 64)}, {}), "exact 0");
  EXPECT_EQ(choice({}, sizes(1, 1, 1)), "none");
}

TEST(Choose, OfBucketsTheOneWithTheLeastWork) {
  const std::vector shapes = {shape_of(8, 64, 64), shape_of(4, 128, 64), shape_of(4, 64, 128),
                              shape_of(4, 64, 96), shape_of(4, 64, 96)};
  EXPECT_EQ(choice(shapes, sizes(3, 60, 60)), "bucket 3");
  EXPECT_EQ(choice(shapes, sizes(5, 60, 60)), "bucket 0");
  EXPECT_EQ(choice(shapes, sizes(4, 128, 10)), "bucket 1");
  EXPECT_EQ(choice(shapes, sizes(4, 64, 100)), "bucket 2");
  EXPECT_EQ(choice(shapes, sizes(5, 60, 65)), "none");
  EXPECT_EQ(choice(shapes, sizes(4, 64, 0)), "bucket 3") << "no keys at all are fewer keys";
  EXPECT_EQ(choice(shapes, sizes(3, 60, 60), false), "none");
}

TEST(Choose, OnlyWhatIsPaddedMayBeSmaller) {
  const auto serves = [](std::vector<Dim> padded, const Sizes& wanted) {
    return contains(shape_of(8, 64, 96, std::move(padded)), wanted);
  };
  EXPECT_TRUE(serves({Dim::B}, sizes(7, 64, 96)));
  EXPECT_FALSE(serves({Dim::B}, sizes(7, 63, 96)));
  EXPECT_TRUE(serves({Dim::B, Dim::Sq}, sizes(7, 63, 96)));
  EXPECT_FALSE(serves({Dim::Sq, Dim::Skv}, sizes(7, 63, 95)));
  EXPECT_TRUE(serves({Dim::Sq, Dim::Skv}, sizes(8, 63, 95)));
  EXPECT_FALSE(serves({}, sizes(8, 64, 95)));
  EXPECT_FALSE(serves({Dim::B}, sizes(8, 64, 96))) << "that is exact";
  EXPECT_FALSE(serves({Dim::B}, sizes(9, 64, 96)));
  Sizes heads = sizes(7, 64, 96);
  heads.set(Dim::Hq, 4);
  EXPECT_TRUE(serves({Dim::B}, heads));
  heads.set(Dim::Hq, 2);
  EXPECT_FALSE(serves({Dim::B}, heads));
}

// A spec may derive Skv from Sq, so a plan says nothing about a size that is not given.
TEST(Choose, ABucketNeedsAllThreeSizes) {
  const std::vector shapes = {shape_of(8, 64, 64)};
  EXPECT_EQ(choice(shapes, {{Dim::B, 7}, {Dim::Sq, 64}}), "none");
  const Error error = no_plan_for(shapes, {{Dim::B, 7}, {Dim::Sq, 64}});
  EXPECT_THAT(error.notes, ElementsAre("there are plans for: B=8 Sq=64",
                                       HasSubstr("B, Sq and Skv must all be given")));
}

TEST(Choose, NothingIsGuessed) {
  const std::vector shapes = {shape_of(8, 64, 64), shape_of(8, 64, 128)};
  EXPECT_EQ(choice(shapes, {{Dim::B, 8}, {Dim::Sq, 64}}), "invalid_argument");
  const auto chosen = choose(shapes, {{Dim::B, 8}}, true);
  EXPECT_EQ(chosen.error().message, "plans for B=8 differ in Skv: give that size too");
  EXPECT_EQ(choose(shapes, {}, true).error().message, "plans differ in Skv: give that size too");
  std::vector heads = {shape_of(8, 64, 64), shape_of(8, 64, 64)};
  heads[1].sizes.set(Dim::Hq, 2);
  EXPECT_EQ(choice(heads, sizes(8, 64, 64)), "invalid_argument");
  EXPECT_EQ(choice(heads, sizes(7, 64, 64)), "invalid_argument");
  Sizes wanted = sizes(7, 64, 64);
  wanted.set(Dim::Hq, 2);
  EXPECT_EQ(choice(heads, wanted), "bucket 1");
}

TEST(Choose, WhatThereIsAndWhatWouldWorkIsSaid) {
  const std::vector shapes = {shape_of(8, 64, 64, {Dim::B}), shape_of(8, 64, 128, {Dim::B})};
  Error error = no_plan_for(shapes, sizes(3, 60, 60));
  EXPECT_EQ(error.code, ErrorCode::plan_shape);
  EXPECT_EQ(error.message, "there is no plan for B=3 Sq=60 Skv=60");
  EXPECT_THAT(
      error.notes,
      ElementsAre("there are plans for: B=8 Sq=64 Skv=64; B=8 Sq=64 Skv=128",
                  "the plan for B=8 Sq=64 Skv=64 is large enough, but does not serve a "
                  "smaller Sq, Skv: that needs `lengths q, kv`, and a spec that does not depend on "
                  "the size"));
  error = no_plan_for(shapes, sizes(3, 65, 60));
  EXPECT_EQ(error.notes.size(), 1U) << "none is large enough";
  EXPECT_THAT(no_plan_for({}, sizes(1, 1, 1)).notes, ElementsAre("there are no plans"));
  EXPECT_EQ(no_plan_for(shapes, {}).message, "there is no plan");
  std::vector<plan::Shape> many;
  for (int i = 1; i <= 100; ++i) many.push_back(shape_of(i, 1, 1));
  EXPECT_THAT(no_plan_for(many, sizes(101, 1, 1)).notes[0], HasSubstr("; and 84 more"));
}

TEST(ChoosePlans, OfAShapeBothDirectionsThatServe) {
  const plan::Bundle bundle{{plan_of(shape_of(4, 8, 8)), plan_of(shape_of(8, 8, 8), true),
                             plan_of(shape_of(8, 8, 8)), plan_of(shape_of(8, 8, 8))}};
  const auto places = [&](const Sizes& wanted, std::size_t unfit = 99) {
    const auto serves = [&](const plan::Plan& plan) { return &plan != &bundle.plans[unfit]; };
    const auto chosen = choose_plans(bundle, wanted, serves);
    EXPECT_TRUE(chosen.ok()) << chosen.error().to_text();
    return std::pair(chosen->forward, chosen->backward);
  };
  const auto pair = [](std::optional<std::size_t> forward, std::optional<std::size_t> backward) {
    return std::pair(forward, backward);
  };
  EXPECT_EQ(places(sizes(8, 8, 8)), pair(2, 1)) << "the first of each direction";
  EXPECT_EQ(places({{Dim::B, 4}}), pair(0, std::nullopt));
  EXPECT_EQ(places(sizes(8, 8, 8), 2), pair(3, 1));
  EXPECT_EQ(places(sizes(8, 8, 8), 1), pair(2, std::nullopt));
  EXPECT_EQ(places({}, 0), pair(2, 1)) << "all that serve are of one shape";
  EXPECT_EQ(places(sizes(7, 8, 8)), pair(std::nullopt, std::nullopt)) << "nothing is padded";
  const auto any = [](const plan::Plan&) { return true; };
  const Error vague = choose_plans(bundle, {}, any).error();
  EXPECT_EQ(vague.message, "plans differ in B: give that size too");
  EXPECT_THAT(vague.notes, ElementsAre("the shapes are: B=4; B=8"));
}

}  // namespace
}  // namespace attn::picker
