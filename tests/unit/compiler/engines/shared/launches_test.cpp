#include "compiler/engines/shared/launches.h"

#include <gmock/gmock.h>

#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines {
namespace {

using engines::Part;
using engines::Stretch;
using engines::View;
using ir::Dim;
using masks::testing::of_spec;
using ::testing::ElementsAre;

// Sq = Skv = 64, D 8.
ir::Attention whole(int batch, int heads, int groups, const std::string& clauses) {
  return of_spec("attention a { dims B = " + std::to_string(batch) +
                 ", Hq = " + std::to_string(heads * groups) + ", Hkv = " + std::to_string(heads) +
                 ", Sq = 64, Skv = 64, D = 8; " + clauses + " }");
}

Part part_of(const ir::Attention& attention, const View& view) {
  return {view, *seen_through(view, attention)};
}

std::vector<Launch> launched(const ir::Attention& attention, const View& view) {
  const auto made = launches(attention, {part_of(attention, view)});
  EXPECT_TRUE(made.ok()) << made.error().to_text();
  return made.ok() ? *made : std::vector<Launch>();
}

const Stretch kChunk{0, 1, 16, 16};
const View kChunks{kChunk, kChunk, 4};
const Stretch kResidue{0, 4, 16, 1};
const View kResidues{kResidue, kResidue, 4};

TEST(Launches, AStretchBeginsAtAnOffset) {
  const auto made = launched(whole(2, 2, 2, "layout bshd;"),
                             {{.begin = 16, .count = 32}, {.begin = 3, .step = 2, .count = 30}});
  ASSERT_EQ(made.size(), 1U);
  const Launch& launch = made[0];
  EXPECT_EQ(launch.fold, Fold::none);
  EXPECT_EQ(launch.attention.dims[Dim::Sq], 32);
  EXPECT_EQ(launch.attention.dims[Dim::Skv], 30);
  EXPECT_EQ(launch.offsets.at("q"), 16 * 4 * 8);
  EXPECT_EQ(launch.offsets.at("o"), 16 * 4 * 8);
  EXPECT_EQ(launch.offsets.at("k"), 3 * 2 * 8);
  EXPECT_THAT(launch.attention.layouts.at("q").strides, ElementsAre(64 * 32, 8, 32, 1));
  EXPECT_THAT(launch.attention.layouts.at("v").strides, ElementsAre(64 * 16, 8, 2 * 16, 1));
}

TEST(Launches, ChunksAreBatchesWhereBatchesFollowThem) {
  const auto made = launched(whole(2, 2, 2, "layout bshd;"), kChunks);
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].fold, Fold::batch);
  EXPECT_EQ(made[0].attention.dims[Dim::B], 8);
  EXPECT_EQ(made[0].attention.dims[Dim::Hq], 4);
  EXPECT_THAT(made[0].attention.layouts.at("q").strides, ElementsAre(16 * 32, 8, 32, 1));
}

TEST(Launches, OfOneBatchChunksAlwaysAreBatches) {
  const auto made = launched(whole(1, 2, 2, "layout bhsd;"), kChunks);
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].fold, Fold::batch);
  EXPECT_THAT(made[0].attention.layouts.at("k").strides, ElementsAre(16 * 8, 64 * 8, 8, 1));
}

TEST(Launches, ChunksAreInnerHeadsWhereHeadsFollowThem) {
  const auto made = launched(whole(2, 3, 1, "layout bhsd;"), kChunks);
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].fold, Fold::inner_heads);
  EXPECT_EQ(made[0].attention.dims[Dim::Hq], 12);
  EXPECT_THAT(made[0].attention.layouts.at("q").strides, ElementsAre(3 * 64 * 8, 16 * 8, 8, 1));
}

TEST(Launches, ResiduesAreHeads) {
  const auto made = launched(whole(2, 2, 2, "layout bshd;"), kResidues);
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].fold, Fold::heads);
  EXPECT_EQ(made[0].attention.dims[Dim::Hq], 16);
  EXPECT_EQ(made[0].attention.dims[Dim::Hkv], 8);
  EXPECT_THAT(made[0].attention.layouts.at("q").strides, ElementsAre(64 * 32, 8, 4 * 32, 1));
}

// Query heads that share keys would not be adjacent.
TEST(Launches, ClassesThatDoNotFitAreLaunchesOfTheirOwn) {
  const auto made = launched(whole(2, 2, 2, "layout bhsd;"), kChunks);
  ASSERT_EQ(made.size(), 4U);
  for (std::size_t c = 0; c < made.size(); ++c) {
    EXPECT_EQ(made[c].fold, Fold::none);
    EXPECT_EQ(made[c].view.classes, 1);
    EXPECT_EQ(made[c].view.rows, (Stretch{static_cast<std::int64_t>(16 * c), 1, 16, 0}));
    EXPECT_EQ(made[c].offsets.at("v"), static_cast<std::int64_t>(16 * c * 8));
  }
}

TEST(Launches, BatchAndHeadAreThoseOfTheWhole) {
  const auto score = [](const ir::Attention& attention, const View& view) {
    const Launch launch = launched(attention, view).at(0);
    return ir::to_source(launch.attention, launch.attention.score);
  };
  const char* clauses = "tensor t: f32[B, Hq]; layout bshd; score score + t[b, h];";
  EXPECT_EQ(score(whole(2, 2, 2, clauses), kChunks), "score + t[b // 4, h]");
  EXPECT_EQ(score(whole(2, 2, 2, clauses), kResidues), "score + t[b, h % 4]");
  EXPECT_EQ(
      score(whole(2, 3, 1, "tensor t: f32[B, Hq]; layout bhsd; score score + t[b, h];"), kChunks),
      "score + t[b, h // 4]");
}

TEST(Launches, WhatHasNoFormIsRefused) {
  const auto error = [](const ir::Attention& attention, const View& view) {
    const auto made = launches(attention, {part_of(attention, view)});
    return made.ok() ? "" : made.error().message;
  };
  const Stretch small{0, 1, 2, 2};
  EXPECT_THAT(error(whole(2, 2, 2, "layout bhsd;"), {small, small, 32}),
              ::testing::HasSubstr("too many kernels"));
  EXPECT_EQ(error(whole(2, 2, 2, "layout bshd;"), {small, small, 32}), "");
}

}  // namespace
}  // namespace attn::engines
