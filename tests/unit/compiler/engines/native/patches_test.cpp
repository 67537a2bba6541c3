#include "compiler/engines/native/patches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/engines/native/maps.h"
#include "compiler/masks/mask_analysis.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::native::patches_tests {
namespace {

using ir::Dim;
using masks::Block;
using masks::testing::of_clauses;
using masks::testing::of_spec;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kWindow =
    "mask abs(q_idx // 16 - kv_idx // 16) <= 2 && abs(q_idx % 16 - kv_idx % 16) <= 2;";
// NATTEN's: shifted inside at the borders.
constexpr const char* kShifted =
    "mask abs(min(max(q_idx // 16, 2), 29) - kv_idx // 16) <= 2 && "
    "abs(min(max(q_idx % 16, 2), 13) - kv_idx % 16) <= 2;";

std::int64_t grid_width(std::int64_t rows, std::int64_t columns, const std::string& clauses) {
  const auto grid = grid_of(of_clauses(rows, columns, clauses));
  return grid ? grid->width : 0;
}

TEST(GridOf, IsTheConstantThatIndicesAreDividedBy) {
  EXPECT_EQ(grid_width(512, 512, kWindow), 16);
  EXPECT_EQ(grid_width(512, 512, kShifted), 16);
  EXPECT_EQ(grid_width(48, 768, "mask q_idx % 48 >= kv_idx % 48 && q_idx >= kv_idx;"), 48);
}

TEST(GridOf, ValuesArePartsOfPlaces) {
  const ir::Attention attention = of_clauses(512, 512, kWindow);
  std::vector<std::string> texts;
  const Grid grid = grid_of(attention).value();
  for (const GridValue& value : grid.values) {
    texts.push_back(ir::to_source(attention, value.expression) + " = " + value.text);
  }
  EXPECT_THAT(texts,
              ::testing::UnorderedElementsAre("q_idx = row.index", "kv_idx = column.index",
                                              "q_idx // 16 = row.y", "kv_idx // 16 = column.y",
                                              "q_idx % 16 = row.x", "kv_idx % 16 = column.x"));
}

TEST(GridOf, IsNoneOfOtherMasks) {
  EXPECT_EQ(grid_width(512, 512, ""), 0);
  EXPECT_EQ(grid_width(512, 512, "mask q_idx // 16 == kv_idx // 16;"), 0) << "no x";
  EXPECT_EQ(grid_width(512, 512, "mask q_idx % 16 >= kv_idx % 32;"), 0) << "two widths";
  EXPECT_EQ(grid_width(576, 576, "mask q_idx % 12 >= kv_idx % 12;"), 0) << "cells of 8";
  EXPECT_EQ(grid_width(504, 512, "mask q_idx % 16 >= kv_idx % 16;"), 0) << "half a row";
  EXPECT_EQ(grid_width(512, 384, "mask q_idx % 16 >= kv_idx % 16;"), 0) << "24 rows of keys";
  EXPECT_EQ(grid_width(512, 512, std::string("lengths kv; ") + kWindow), 0);
  EXPECT_EQ(grid_width(512, 512,
                       "tensor t: i32[Sq]; mask t[q_idx] > kv_idx && q_idx % 16 >= kv_idx % 16;"),
            0);
}

Tile patch(std::int64_t pack, std::int64_t grid, std::int64_t width, std::int64_t height) {
  return {.pack = pack, .patch = Patch{grid, width, height}};
}

TEST(PatchTiles, AreRectanglesOfTheGrid) {
  const auto sizes = [](const ir::Attention& attention, const Tile& tile) {
    std::vector<std::pair<std::int64_t, std::int64_t>> all;
    for (const Tile& made : patch_tiles(attention, grid_of(attention).value(), tile)) {
      all.emplace_back(made.patch->width, made.patch->height);
    }
    return all;
  };
  const ir::Attention attention = of_clauses(512, 512, kWindow);
  EXPECT_THAT(sizes(attention, {}), ElementsAre(std::pair(8, 16), std::pair(16, 8)));
  EXPECT_THAT(sizes(attention, {.pack = 2}), ElementsAre(std::pair(8, 8), std::pair(16, 4)));
  EXPECT_THAT(sizes(attention, {.groups = 3, .keys = 80}), IsEmpty());
  EXPECT_THAT(sizes(attention, {.tables = 1}), IsEmpty());
  // 24 rows of queries
  EXPECT_THAT(sizes(of_clauses(384, 512, kWindow), {}), ElementsAre(std::pair(16, 8)));
}

// ".": empty, "#": full, "/": partial, row by row
std::vector<KeyRun> patches(const std::string& text, std::int64_t grid) {
  std::vector<Block> cells;
  for (const char c : text) {
    cells.push_back(c == '.' ? Block::empty : c == '#' ? Block::full : Block::partial);
  }
  return patches_of(cells, grid);
}

std::string repeated(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(PatchesOf, BeginAtTheFirstRowThatIsSeen) {
  EXPECT_THAT(patches(repeated(32, ".."), 16), IsEmpty());
  EXPECT_THAT(patches(repeated(5, "..") + repeated(10, "./") + repeated(17, ".."), 16),
              ElementsAre(KeyRun{(5 * 2 + 1) * kCell, 1, true}));
  EXPECT_THAT(patches(repeated(5, "..") + repeated(16, "#.") + repeated(11, ".."), 16),
              ElementsAre(KeyRun{5 * 2 * kCell, 1, false}));
}

TEST(PatchesOf, StayInTheGrid) {
  EXPECT_THAT(patches(repeated(30, ".") + "##", 8), ElementsAre(KeyRun{16 * kCell, 1, true}));
  EXPECT_THAT(patches(repeated(10, ".") + repeated(22, "#"), 8),
              ElementsAre(KeyRun{0, 1, true}, KeyRun{16 * kCell, 1, false}));
}

TEST(PatchesOf, EmptyOnesAreLeftOut) {
  EXPECT_THAT(patches("/" + repeated(38, ".") + "/" + repeated(8, "."), 8),
              ElementsAre(KeyRun{0, 1, true}, KeyRun{32 * kCell, 1, true}));
}

// Compares a list with the masks, score by score.
void expect_right(const ir::Attention& attention, const Tile& tile) {
  const masks::MaskAnalysis mask(attention, nullptr);
  const auto made = key_blocks(attention, masks::varying(mask.axes(), attention.dims), tile);
  ASSERT_TRUE(made.ok()) << made.error().to_text();
  masks::MaskBoxes boxes(attention, attention.masks);
  const auto& [grid, width, height] = *tile.patch;
  const std::int64_t heads = made->axes.head ? attention.dims[Dim::Hq] : 1;
  for (std::size_t n = 0; n < made->lists.size(); ++n) {
    const TileList& list = made->lists[n];
    const std::int64_t head = static_cast<std::int64_t>(n) / made->tiles % heads;
    std::vector<int> kinds(static_cast<std::size_t>(attention.dims[Dim::Skv]));  // 1 full, 2 masked
    for (std::int64_t i = list.first; i < list.first + list.runs; ++i) {
      const KeyRun& run = made->runs[static_cast<std::size_t>(i)];
      ASSERT_EQ(run.blocks, 1);
      const std::int64_t first = run.key / kCell * kPatchWidth;
      for (std::int64_t k = 0; k < kPatchWidth * kPatchHeight; ++k) {
        const std::int64_t key = first + k / kPatchWidth * grid + k % kPatchWidth;
        ASSERT_LT(key, attention.dims[Dim::Skv]);
        EXPECT_EQ(kinds[static_cast<std::size_t>(key)], 0) << "listed twice";
        kinds[static_cast<std::size_t>(key)] = run.masked ? 2 : 1;
      }
    }
    const std::int64_t y = list.tile / (grid / width) * height,
                       x = list.tile % (grid / width) * width;
    for (std::int64_t i = 0; i < width * height; ++i) {
      const std::int64_t q = (y + i / width) * grid + x + i % width;
      for (std::int64_t k = 0; k < attention.dims[Dim::Skv]; ++k) {
        const Block shown = boxes.of({{0, 0}, {head, head}, {q, q}, {k, k}});
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

TEST(PatchesOf, HoldAllThatMasksShowOnce) {
  for (const char* mask :
       {kWindow, kShifted, "mask q_idx % 16 >= kv_idx % 16;",
        "mask q_idx // 16 // 8 == kv_idx // 16 // 8 && q_idx % 16 // 8 == kv_idx % 16 // 8;",
        "mask abs(q_idx // 16 - kv_idx // 16) <= 9 && abs(q_idx % 16 - kv_idx % 16) <= h;",
        "mask abs(q_idx % 16 - kv_idx % 16) > 20;"}) {
    for (const Tile& tile : {patch(1, 16, 8, 16), patch(1, 16, 16, 8), patch(4, 16, 8, 4)}) {
      expect_right(of_clauses(512, 512, mask), tile);
    }
  }
  expect_right(of_clauses(256, 768, kWindow), patch(2, 16, 8, 8));
}

TEST(PatchesOf, AreFullWhereMasksShowAll) {
  const KeyBlocks made =
      key_blocks(of_clauses(512, 512, "mask q_idx % 16 // 8 == kv_idx % 16 // 8;"), {},
                 patch(2, 16, 8, 8))
          .value();
  EXPECT_FALSE(made.masked);
  EXPECT_THAT(made.runs, ElementsAre(KeyRun{0, 1, false}, KeyRun{32 * kCell, 1, false},
                                     KeyRun{kCell, 1, false}, KeyRun{33 * kCell, 1, false}));
}

// B 3, Hq 4, Hkv 2, Sq 512, D 64
std::optional<plan::TensorMapArgument> queries(const std::string& layout, std::int64_t pack) {
  const ir::Attention attention =
      of_spec("attention a { dims B = 3, Hq = 4, Hkv = 2, Sq = 512, Skv = 512, D = 64; layout " +
              layout + "; " + kWindow + " }");
  const Tile tile = patch(pack, 16, 8, 16 / pack);
  if (!batches_as(attention, tile)) return std::nullopt;
  return map_of_queries(attention, tile);
}

TEST(MapOfQueries, HasBatchesAsRowsOrUnits) {
  const auto bshd = queries("bshd", 2);
  ASSERT_TRUE(bshd);
  EXPECT_THAT(bshd->dims, ElementsAre(64, 2, 16, 32 * 3, 2));
  EXPECT_THAT(bshd->strides, ElementsAre(64, 256, 4096, 128));
  EXPECT_THAT(bshd->box, ElementsAre(64, 2, 8, 8, 1));
  const auto bhsd = queries("bhsd", 2);
  ASSERT_TRUE(bhsd);
  EXPECT_THAT(bhsd->dims, ElementsAre(64, 2, 16, 32, 2 * 3));
  EXPECT_THAT(bhsd->strides, ElementsAre(32768, 64, 1024, 65536));
  const auto sbhd = queries("sbhd", 1);
  ASSERT_TRUE(sbhd);
  EXPECT_THAT(sbhd->dims, ElementsAre(64, 1, 16, 32, 4 * 3));
  EXPECT_THAT(sbhd->strides, ElementsAre(8, 768, 12288, 64));
}

TEST(MapOfKeys, HasPlacesOfTheGrid) {
  const ir::Attention attention = of_clauses(512, 512, kWindow);
  const plan::TensorMapArgument map = map_of_keys(attention, "v", patch(2, 16, 8, 8), 128);
  EXPECT_THAT(map.dims, ElementsAre(8, 16, 32, 2, 2));
  EXPECT_THAT(map.strides, ElementsAre(16, 256, 8, 8192));
  EXPECT_THAT(map.box, ElementsAre(64, 8, 16, 1, 1));
}

}  // namespace
}  // namespace attn::engines::native::patches_tests
