#include "compiler/engines/native/key_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/masks/mask_analysis.h"
#include "tests/support/contexts.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::native {
namespace {

using ir::Dim;
using masks::Block;
using masks::testing::of_clauses;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<KeyBlocks> blocks_of(const ir::Attention& attention, const Tile& tile) {
  const masks::MaskAnalysis mask(attention, nullptr);
  return key_blocks(attention, masks::varying(mask.axes(), attention.dims), tile);
}

// Compares each list with the masks, score by score.
void expect_right(const ir::Attention& attention, const Tile& tile) {
  const Result<KeyBlocks> made = blocks_of(attention, tile);
  ASSERT_TRUE(made.ok()) << made.error().to_text();
  masks::MaskBoxes boxes(attention, attention.masks);
  const std::int64_t heads = made->axes.head ? attention.dims[Dim::Hq] : 1;
  for (std::size_t n = 0; n < made->lists.size(); ++n) {
    const TileList& list = made->lists[n];
    const std::int64_t of = static_cast<std::int64_t>(n) / made->tiles;
    std::vector<int> kinds(static_cast<std::size_t>(attention.dims[Dim::Skv]));  // 1 full, 2 masked
    for (std::int64_t i = list.first; i < list.first + list.runs; ++i) {
      const KeyRun& run = made->runs[static_cast<std::size_t>(i)];
      const std::int64_t end = run.key + run.blocks * tile.keys;
      for (std::int64_t k = run.key; k < std::min(end, attention.dims[Dim::Skv]); ++k) {
        EXPECT_EQ(kinds[static_cast<std::size_t>(k)], 0) << "listed twice";
        kinds[static_cast<std::size_t>(k)] = run.masked ? 2 : 1;
      }
    }
    const std::int64_t first = list.tile * tile.rows_of_head();
    for (std::int64_t q = first; q < std::min(first + tile.rows_of_head(), attention.dims[Dim::Sq]);
         ++q) {
      for (std::int64_t k = 0; k < attention.dims[Dim::Skv]; ++k) {
        const masks::Box box{{of / heads, of / heads}, {of % heads, of % heads}, {q, q}, {k, k}};
        const Block shown = boxes.of(box);
        const int kind = kinds[static_cast<std::size_t>(k)];
        if (shown != Block::empty) {
          EXPECT_NE(kind, 0) << q << ' ' << k;
        }
        if (shown != Block::full) {
          EXPECT_NE(kind, 1) << q << ' ' << k;
        }
      }
    }
  }
}

TEST(KeyBlocks, HoldAllThatMasksShow) {
  const Tile large{.groups = 2, .keys = 128}, packed{.groups = 3, .keys = 80, .pack = 2};
  for (const char* mask :
       {"", "mask q_idx >= kv_idx;", "mask q_idx >= kv_idx && q_idx - kv_idx < 40;",
        "mask q_idx // 50 == kv_idx // 50;", "mask abs(q_idx % 32 - kv_idx % 32) <= 3;",
        "mask kv_idx < 10 || q_idx == kv_idx;", "mask kv_idx - q_idx > 150;"}) {
    for (const auto& [rows, columns] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{256, 256}, {77, 301}, {301, 77}}) {
      expect_right(of_clauses(rows, columns, mask), large);
      expect_right(of_clauses(rows, columns, mask), packed);
    }
  }
  expect_right(of_clauses(100, 200, "mask q_idx >= kv_idx || h == 1 || b == 1;"), large);
}

TEST(KeyBlocks, DependOnBatchAndHeadOnlyAsMasksDo) {
  const Tile tile{.groups = 2, .keys = 128};
  const auto lists = [&](const char* mask) {
    return blocks_of(of_clauses(256, 256, mask), tile)->lists.size();
  };
  EXPECT_EQ(lists("mask q_idx >= kv_idx;"), 2U);
  EXPECT_EQ(lists("mask q_idx >= kv_idx || h == 1;"), 8U);
  EXPECT_EQ(lists("mask q_idx >= kv_idx || h == 1 || b == 1;"), 16U);
}

TEST(KeyBlocks, OfOneKindShareTheirRuns) {
  const KeyBlocks made =
      blocks_of(of_clauses(512, 512, ""), Tile{.groups = 2, .keys = 128}).value();
  EXPECT_EQ(made.lists.size(), 4U);
  EXPECT_THAT(made.runs, ElementsAre(KeyRun{0, 4, false}));
  EXPECT_FALSE(made.masked);
  EXPECT_FALSE(made.sorted);
  EXPECT_EQ(made.blocks, 4 * 4 * 8);
}

TEST(KeyBlocks, TheLongestTilesComeFirst) {
  const KeyBlocks made =
      blocks_of(of_clauses(512, 512, "mask q_idx >= kv_idx;"), Tile{.groups = 2, .keys = 128})
          .value();
  EXPECT_TRUE(made.sorted);
  EXPECT_EQ(made.lists.front().tile, 3);
  EXPECT_EQ(made.lists.back().blocks, 1);
}

TEST(KeyBlocks, WhatTensorsDecideIsMasked) {
  const KeyBlocks made = blocks_of(of_clauses(256, 256,
                                              "tensor d: i32[Skv]; mask d[q_idx] == d[kv_idx] && "
                                              "q_idx >= kv_idx;"),
                                   Tile{.groups = 2, .keys = 128})
                             .value();
  EXPECT_TRUE(made.masked);
  EXPECT_THAT(made.runs, ElementsAre(KeyRun{0, 1, true}, KeyRun{0, 2, true}));
}

// A tile whose blocks lengths cut off computes one block, in which masks must be evaluated.
TEST(KeyBlocks, MasksAreEvaluatedBesideLengths) {
  const auto masked = [](const std::string& clauses) {
    return blocks_of(of_clauses(256, 256, clauses), Tile{.groups = 2, .keys = 128})->masked;
  };
  EXPECT_FALSE(masked("mask kv_idx >= 128;"));
  EXPECT_TRUE(masked("lengths kv; mask kv_idx >= 128;"));
  EXPECT_FALSE(masked("lengths kv;"));
}

TEST(KeyBlocks, TooManyAreRefused) {
  const Result<KeyBlocks> made =
      blocks_of(of_clauses(1 << 25, 64, "mask q_idx >= kv_idx;"), Tile{.groups = 2, .keys = 128});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::unsupported);
  EXPECT_THAT(made.error().message, HasSubstr("lists of key blocks"));
}

TEST(KeyBlocks, OfRandomDropoutBeginWhereItsNumbersDo) {
  const ir::Attention attention =
      of_clauses(500, 700, "mask abs(q_idx - kv_idx) < 50; dropout 0.1;");
  for (const Tile& tile : tiles_for(attention, false, {})) {
    EXPECT_EQ(tile.keys % 32, 0);
    const KeyBlocks made = blocks_of(attention, tile).value();
    for (const KeyRun& run : made.runs) EXPECT_EQ(run.key % 32, 0);
    expect_right(attention, tile);
  }
}

}  // namespace
}  // namespace attn::engines::native
