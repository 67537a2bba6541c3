#include "tools/shapes.h"

#include <gtest/gtest.h>

#include "tests/unit/tools/spec_text.h"

namespace attn::tools {
namespace {

std::vector<Shape> shapes(const std::string& dims, const sema::Bindings& given = {},
                          ShapeSet set = ShapeSet::scaled) {
  const Spec spec = spec_of("attention t(window = 4096, one = 1) { dims " + dims +
                                "; mask q_idx - kv_idx < window * one; outputs o; }",
                            given);
  return shapes_of(*spec.source, spec.attention, given, set);
}

std::string at(const Shape& shape, const std::string& name) {
  const auto found = shape.bindings.find(name);
  return found == shape.bindings.end() ? "" : found->second;
}

TEST(Shapes, LargeSizesAreScaledDown) {
  const Shape shape = shapes("B = 32, Hq = 32, Hkv = 8, Sq = 8192, Skv = Sq, D = 128")[0];
  EXPECT_EQ(at(shape, "B"), "2");
  EXPECT_EQ(at(shape, "Hq"), "8");
  EXPECT_EQ(at(shape, "Hkv"), "2");
  EXPECT_EQ(at(shape, "Sq"), "512");
  EXPECT_EQ(at(shape, "Skv"), "512");
  EXPECT_EQ(at(shape, "Dqk"), "128");
  EXPECT_EQ(at(shape, "window"), "256");
  EXPECT_EQ(at(shape, "one"), "");
}

TEST(Shapes, OwnSizesStay) {
  const std::vector<Shape> all =
      shapes("B = 5, Hq = 32, Hkv = 8, Sq = 8192, Skv, D = 128", {{"Hq", "16"}}, ShapeSet::own);
  ASSERT_EQ(all.size(), 1U);
  const sema::Bindings expected = {{"B", "5"},     {"Hq", "16"},   {"Hkv", "8"}, {"Sq", "8192"},
                                   {"Skv", "256"}, {"Dqk", "128"}, {"Dv", "128"}};
  EXPECT_EQ(all[0].bindings, expected);
}

TEST(Shapes, SmallSizesStay) {
  const Shape shape = shapes("B = 1, Hq = 3, Hkv = 3, Sq = 1, Skv = 100, D = 64")[0];
  EXPECT_EQ(at(shape, "B"), "1");
  EXPECT_EQ(at(shape, "Hq"), "3");
  EXPECT_EQ(at(shape, "Hkv"), "3");
  EXPECT_EQ(at(shape, "Sq"), "1");
  EXPECT_EQ(at(shape, "Skv"), "100");
  EXPECT_EQ(at(shape, "window"), "");  // already larger than the old Skv
}

TEST(Shapes, TheOrderOfLengthsStays) {
  const std::pair<const char*, const char*> cases[] = {
      {"Sq = 4096, Skv = 8192", "256 512"}, {"Sq = 8192, Skv = 1024", "512 64"},
      {"Sq = 600, Skv = 601", "511 512"},   {"Sq = 300, Skv = 300", "300 300"},
      {"Sq = 1, Skv = 100000", "1 512"},    {"Sq = 8192, Skv", "512 256"}};
  for (const auto& [lengths, expected] : cases) {
    const Shape shape = shapes(std::string("B = 1, Hq = 2, Hkv = 2, D = 64, ") + lengths)[0];
    EXPECT_EQ(at(shape, "Sq") + " " + at(shape, "Skv"), expected) << lengths;
  }
}

TEST(Shapes, TheRatioOfHeadsStays) {
  EXPECT_EQ(at(shapes("B = 1, Hq = 40, Hkv = 8, Sq = 1, Skv = 1, D = 8")[0], "Hq"), "5");
  EXPECT_EQ(at(shapes("B = 1, Hq = 71, Hkv = 1, Sq = 1, Skv = 1, D = 8")[0], "Hq"), "71");
  EXPECT_EQ(at(shapes("B = 1, Hq = 12, Hkv = 12, Sq = 1, Skv = 1, D = 8")[0], "Hkv"), "8");
}

TEST(Shapes, OpenDimensionsGetSizes) {
  const Shape shape = shapes("B, Hq, Hkv, Sq, Skv, D")[0];
  EXPECT_EQ(at(shape, "Hq"), "4");
  EXPECT_EQ(at(shape, "Hkv"), "2");
  EXPECT_EQ(at(shape, "Dv"), "64");
}

TEST(Shapes, WhatIsBoundStays) {
  const Shape shape = shapes("B = 9, Hq = 2, Hkv = 1, Sq = 8192, Skv = Sq, D = 128",
                             {{"Skv", "8192"}, {"D", "16"}, {"window", "5000"}})[0];
  EXPECT_EQ(at(shape, "Skv"), "8192");
  EXPECT_EQ(at(shape, "window"), "5000");
  EXPECT_EQ(at(shape, "D"), "16");
  EXPECT_EQ(at(shape, "Dqk"), "");
}

TEST(Shapes, AllAddsOddOnesAndASingleRow) {
  const auto all =
      shapes("B = 32, Hq = 32, Hkv = 8, Sq = 8192, Skv = Sq, D = 128", {}, ShapeSet::all);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(at(all[1], "B") + at(all[1], "Sq") + at(all[1], "Skv"), "2129777");
  EXPECT_EQ(at(all[1], "window"), "388");
  EXPECT_EQ(at(all[2], "Sq"), "1");
  EXPECT_EQ(at(all[2], "Skv"), "777");
}

TEST(Shapes, OnePackedTensorHasOneLength) {
  const Spec spec = spec_of(
      "attention t { dims B = 2, Hq = 4, Hkv = 2, Sq = 4096, Skv = Sq, D = 64; layout packed_qkv; "
      "outputs o; }");
  for (const Shape& shape : shapes_of(*spec.source, spec.attention, {}, ShapeSet::all)) {
    EXPECT_EQ(at(shape, "Sq"), at(shape, "Skv")) << shape.name;
  }
}

}  // namespace
}  // namespace attn::tools
