#include "compiler/engines/shared/partition.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/engines/shared/cost.h"
#include "compiler/rewrite/pass.h"
#include "tests/support/contexts.h"
#include "tests/support/random_spec.h"
#include "tests/unit/compiler/masks/dense.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines {
namespace {

using ir::Dim;
using masks::testing::Dense;

TEST(Writers, TheFirstOfThoseThatShareRowsWritesThem) {
  const Stretch all{0, 1, 64}, first{0, 1, 16}, rest{16, 1, 48}, odd{1, 2, 32};
  const auto of = [](std::initializer_list<Stretch> rows) {
    std::vector<View> views;
    for (const Stretch& stretch : rows) views.push_back({stretch, {.count = 1}});
    return writers(views, &View::rows, 64);
  };
  EXPECT_EQ(of({rest, first}).alone, (std::vector{true, true}));
  EXPECT_TRUE(of({rest, first}).whole);
  EXPECT_EQ(of({all, first}).alone, (std::vector{true, false}));
  EXPECT_TRUE(of({all, first}).whole);
  EXPECT_EQ(of({rest, odd}).alone, (std::vector{true, false}));
  EXPECT_FALSE(of({rest, odd}).whole);
}

TEST(Writers, ClassesAreLookedAtTogether) {
  const std::vector<View> views = {{{0, 4, 16, 1}, {0, 4, 16, 1}, 4}};
  EXPECT_TRUE(writers(views, &View::rows, 64).whole);
  EXPECT_TRUE(writers(views, &View::columns, 64).whole);
  EXPECT_FALSE(writers(views, &View::rows, 65).whole);
}

// At a size where parts pay.
ir::Attention large(const std::string& clauses) {
  return masks::testing::of_spec(
      "attention a { dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = 4096, D = 128; " + clauses +
      " }");
}
std::string name(const std::string& clauses, bool backward = false) {
  const auto found = best_partition(large(clauses), attn::testing::in(backward));
  return found ? std::string(found->name) : "none";
}

TEST(BestPartition, OfMasksThatHaveOne) {
  EXPECT_EQ(name("mask q_idx // 256 == kv_idx // 256;"), "chunks");
  EXPECT_EQ(name("mask (q_idx - kv_idx) % 2 == 0 && abs(q_idx - kv_idx) <= 512;"), "residues");
  EXPECT_EQ(name("mask kv_idx < 128 || q_idx >= kv_idx;"), "rows");
  EXPECT_EQ(name("score where(abs(q_idx - kv_idx) % 2 == 0, score * 2, score * 0.5);"), "residues");
  EXPECT_EQ(name("mask abs(q_idx - kv_idx) <= 256;", true), "shifted");
}

TEST(BestPartition, OfMasksThatHaveNone) {
  EXPECT_EQ(name(""), "none");
  EXPECT_EQ(name("mask q_idx >= kv_idx;"), "none");
  EXPECT_EQ(name("mask q_idx >= kv_idx;", true), "none");
  EXPECT_EQ(name("tensor doc: i32[Skv]; mask doc[q_idx] == doc[kv_idx];"), "none");
}

TEST(BestPartition, MayBeAllThatIsShown) {
  const ir::Attention attention = large("mask abs(kv_idx - 1000) < 500 && q_idx // 1024 == 2;");
  for (const bool backward : {false, true}) {
    const auto found = best_partition(attention, attn::testing::in(backward));
    ASSERT_TRUE(found);
    ASSERT_EQ(found->parts.size(), 1U) << found->name;
    EXPECT_EQ(found->parts[0].view, (View{{2048, 1, 1024, 0}, {501, 1, 999, 0}, 1}));
    EXPECT_EQ(masks::testing::masks_of(found->parts[0].attention), "true");
  }
}

TEST(BestPartition, OfChunksIsOneKernel) {
  const ir::Attention attention = large("mask q_idx // 256 == kv_idx // 256 && q_idx >= kv_idx;");
  const auto found = best_partition(attention, attn::testing::in(false));
  ASSERT_EQ(found->parts.size(), 1U);
  const Stretch chunk{0, 1, 256, 256};
  EXPECT_EQ(found->parts[0].view, (View{chunk, chunk, 16}));
  EXPECT_EQ(masks::testing::masks_of(found->parts[0].attention), "q_idx >= kv_idx");
  EXPECT_LT(found->predicted_ms,
            predicted_ms(rewrite::kernel_form(attention, {}), attn::testing::in(false)));
}

TEST(BestPartition, TheLastChunkMayBeSmaller) {
  const auto found = best_partition(
      masks::testing::of_spec(
          "attention a { dims B = 4, Hq = 8, Hkv = 8, Sq = 1000, Skv = 1000, D = 128; "
          "mask q_idx // 256 == kv_idx // 256; }"),
      {});
  ASSERT_EQ(found->parts.size(), 2U);
  EXPECT_EQ(found->parts[0].view.classes, 3);
  EXPECT_EQ(found->parts[1].view.rows, (Stretch{768, 1, 232, 0}));
}

// How many parts show each score of the whole, row by row.
std::vector<int> parts_that_show(const ir::Attention& whole, const Partition& partition) {
  const std::int64_t columns = whole.dims[Dim::Skv];
  std::vector<int> counts(static_cast<std::size_t>(whole.dims[Dim::Sq] * columns));
  for (const Part& part : partition.parts) {
    const std::vector<bool> shown = masks::testing::shown(part.attention);
    for (std::int64_t c = 0; c < part.view.classes; ++c) {
      std::size_t place = 0;
      for (std::int64_t row = 0; row < part.view.rows.count; ++row) {
        for (std::int64_t column = 0; column < part.view.columns.count; ++column) {
          if (!shown[place++]) continue;
          const std::int64_t at =
              part.view.rows.index(c, row) * columns + part.view.columns.index(c, column);
          ++counts[static_cast<std::size_t>(at)];
        }
      }
    }
  }
  return counts;
}

// Each score that the whole shows is shown by one part, and no other is; of forwards and backwards.
TEST(BestPartition, OfRandomSpecsShowsEachScoreOnce) {
  std::map<std::string_view, int> found;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const std::string text = attn::testing::random_spec(seed, 32);
    if (text.find("h %") != std::string::npos) continue;  // dense.h knows of no heads
    const ir::Attention attention = masks::testing::of_spec(text);
    std::vector<int> wanted;
    for (const bool shown : masks::testing::shown(attention)) wanted.push_back(shown ? 1 : 0);
    const auto partition = best_partition(attention, attn::testing::in(seed % 2 != 0));
    if (!partition) continue;
    ++found[partition->name];
    ASSERT_EQ(parts_that_show(attention, *partition), wanted) << partition->name << ": " << text;
  }
  for (const char* name : {"chunks", "residues", "rows", "cells", "union"}) {
    EXPECT_GT(found[name], 0) << name;
  }
}

// It pays where there are many tiles to be skipped.
TEST(BestPartition, OfWindowsToBothSidesShowsEachScoreOnce) {
  for (const char* mask : {"abs(q_idx - kv_idx) <= 40", "kv_idx - q_idx < 30 && q_idx % 3 != 0"}) {
    const ir::Attention attention = masks::testing::of_spec(
        fmt::format("attention a {{ dims B = 4, Hq = 32, Hkv = 32, Sq = 1000, Skv = 1100, D = 128; "
                    "mask {}; }}",
                    mask));
    std::vector<int> wanted;
    for (const bool shown : masks::testing::shown(attention)) wanted.push_back(shown ? 1 : 0);
    const auto partition = best_partition(attention, attn::testing::in(true));
    ASSERT_TRUE(partition.has_value()) << mask;
    EXPECT_THAT(partition->name, ::testing::AnyOf("shifted", "narrowed")) << mask;
    EXPECT_TRUE(parts_that_show(attention, *partition) == wanted) << mask;
  }
}

}  // namespace
}  // namespace attn::engines
