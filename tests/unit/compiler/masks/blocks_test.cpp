#include "compiler/masks/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "compiler/reference/row_evaluator.h"
#include "compiler/rewrite/simplify.h"
#include "tests/unit/compiler/masks/example.h"
#include "tests/unit/compiler/masks/random_mask.h"
#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::masks {
namespace {

// ' ' empty, '#' full, '+' partial; one line per row of blocks.
std::string picture(const BlockMap& map) {
  std::string text;
  for (std::int64_t row = 0; row < map.height; ++row) {
    for (std::int64_t column = 0; column < map.width; ++column) {
      const Block block = map.at(row, column);
      text += block == Block::empty ? ' ' : block == Block::full ? '#' : '+';
    }
    text += '\n';
  }
  return text;
}

ir::Attention of_clauses(const std::string& clauses) {
  const sema::Analyzed analyzed = sema::analyze_body("dims B = 1, Hq = 1, D = 8; " + clauses);
  EXPECT_TRUE(analyzed.attention.has_value()) << analyzed.text;
  return rewrite::simplify(analyzed.attention.value());
}

BlockMap map_of(const std::string& clauses, std::int64_t operations = Effort::kMost) {
  return block_map(of_clauses(clauses), kBlock, kBlock, operations);
}

std::string picture(const std::string& clauses) { return picture(map_of(clauses)); }

TEST(Blocks, OfACausalMask) {
  EXPECT_EQ(picture("dims Sq = 512; mask q_idx >= kv_idx;"),
            "+   \n"
            "#+  \n"
            "##+ \n"
            "###+\n");
}

TEST(Blocks, TheLastMayBeSmaller) {
  EXPECT_EQ(picture("dims Sq = 257, Skv = 300; mask kv_idx < 128 || q_idx >= 256;"),
            "#  \n"
            "#  \n"
            "###\n");
}

TEST(Blocks, OfChunksAndGlobalTokens) {
  EXPECT_EQ(picture("dims Sq = 768; mask kv_idx < 64 || q_idx // 256 == kv_idx // 256;"),
            "##    \n"
            "##    \n"
            "+ ##  \n"
            "+ ##  \n"
            "+   ##\n"
            "+   ##\n");
}

TEST(Blocks, AreCounted) {
  const BlockMap map = map_of("dims Sq = 8192; mask 0 <= q_idx - kv_idx < 512;");
  EXPECT_EQ(map.count(Block::partial), 64 + 60);
  EXPECT_EQ(map.count(Block::full), 63 + 62 + 61);
  EXPECT_EQ(map.count(Block::empty), 64 * 64 - 64 - 60 - 63 - 62 - 61);
}

// Always true, which is found score by score: a sum of two squares never leaves 3 of 4.
const std::string kCostly = "(q_idx * q_idx + kv_idx * kv_idx) % 4 != 3";

TEST(Blocks, CostlyOnesLeaveTheSearchToRectanglesFirst) {
  const std::string clauses = "dims Sq = 512; mask kv_idx < 256 && " + kCostly + ";";
  const BlockMap stopped = map_of(clauses, 1 << 15);
  EXPECT_EQ(picture(stopped), "++  \n++  \n++  \n++  \n");
  EXPECT_EQ(stopped.exactness, Exactness::stopped);
  const BlockMap whole = map_of(clauses);
  EXPECT_EQ(picture(whole), "##  \n##  \n##  \n##  \n");
  EXPECT_EQ(whole.exactness, Exactness::exact);
}

TEST(Blocks, CostlyOnesAreRefinedInTurns) {
  const std::string cheap = "q_idx % 128 < 64 && q_idx % 128 >= 64";
  const BlockMap map =
      map_of("dims Sq = 256; mask where(kv_idx < 128, " + kCostly + ", " + cheap + ");", 1 << 18);
  EXPECT_EQ(picture(map), "+ \n+ \n");
  EXPECT_EQ(map.exactness, Exactness::stopped);
}

TEST(Blocks, TellWhetherTheSearchOrTheMaskLeavesThemUnknown) {
  const std::string unknown = "dims Sq = 256; param n: i32; mask q_idx < n;";
  EXPECT_EQ(map_of(unknown).exactness, Exactness::bound);
  EXPECT_EQ(map_of(unknown, 0).exactness, Exactness::stopped);
  EXPECT_EQ(map_of("dims Sq = 256; mask exp(q_idx) < 1e9;").exactness, Exactness::bound);
}

// Counts score by score.
class Counted {
 public:
  Counted(const ir::Attention& attention, std::int64_t rows, std::int64_t columns)
      : evaluator_(attention, none_, attention.masks),
        attention_(attention),
        rows_(rows),
        columns_(columns) {}

  // The number of visible and hidden scores in a block.
  std::pair<int, int> of(std::int64_t row, std::int64_t column) {
    const std::int64_t height = attention_.dims[ir::Dim::Sq];
    const std::int64_t width = attention_.dims[ir::Dim::Skv];
    const std::vector<double> scores(static_cast<std::size_t>(width));
    std::pair<int, int> counts;
    for (std::int64_t r = row * rows_; r < std::min(height, (row + 1) * rows_); ++r) {
      evaluator_.run({0, 0, r}, scores);
      for (std::int64_t c = column * columns_; c < std::min(width, (column + 1) * columns_); ++c) {
        ++(is_visible(static_cast<std::size_t>(c)) ? counts.first : counts.second);
      }
    }
    return counts;
  }

 private:
  bool is_visible(std::size_t column) const {
    return std::ranges::all_of(attention_.masks, [&](ir::ExprId mask) {
      return evaluator_.cells(mask)[column].value != 0;
    });
  }

  reference::Bindings none_;
  reference::RowEvaluator evaluator_;
  const ir::Attention& attention_;
  std::int64_t rows_, columns_;
};

TEST(Blocks, OfRandomMasksAreWhatTheyShow) {
  std::mt19937_64 random(3);
  const auto upto = [&](std::uint64_t most) {
    return static_cast<std::int64_t>(random() % most + 1);
  };
  int told = 0;
  for (int i = 0; i < 1000; ++i) {
    ir::Attention attention = testing::example(upto(40), upto(40));
    testing::RandomMask mask(attention, random);
    attention.masks = {mask.boolean(2), mask.boolean(1)};
    const BlockMap map = block_map(attention, upto(16), upto(16));
    EXPECT_EQ(map.exactness, Exactness::exact);
    Counted counted(attention, map.rows, map.columns);
    for (std::int64_t row = 0; row < map.height; ++row) {
      for (std::int64_t column = 0; column < map.width; ++column) {
        const auto [visible, hidden] = counted.of(row, column);
        const Block block = map.at(row, column);
        ASSERT_TRUE(block != Block::empty || visible == 0);
        ASSERT_TRUE(block != Block::full || hidden == 0);
        ASSERT_TRUE(block != Block::partial || (visible > 0 && hidden > 0));
        told += block == Block::partial ? 0 : 1;
      }
    }
  }
  EXPECT_GT(told, 5000);
}

TEST(RowCounts, OfRandomMasksAreWhatTheyShow) {
  std::mt19937_64 random(4);
  const auto upto = [&](std::uint64_t most) {
    return static_cast<std::int64_t>(random() % most + 1);
  };
  for (int i = 0; i < 1000; ++i) {
    ir::Attention attention = testing::example(upto(40), upto(40));
    testing::RandomMask mask(attention, random);
    attention.masks = {mask.boolean(2), mask.boolean(1)};
    Counted rows(attention, 1, attention.dims[ir::Dim::Skv]);
    RowCounts counts{INT64_MAX, 0};
    for (std::int64_t row = 0; row < attention.dims[ir::Dim::Sq]; ++row) {
      const std::int64_t visible = rows.of(row, 0).first;
      counts.fewest = std::min(counts.fewest, visible);
      counts.most = std::max(counts.most, visible);
    }
    ASSERT_EQ(row_counts(attention, nullptr), counts);
  }
}

TEST(RowCounts, AreBoundsWhereTensorsDecideOrTheSearchIsStopped) {
  const auto counts = [](const std::string& clauses, std::int64_t operations) {
    return row_counts(of_clauses(clauses), nullptr, operations);
  };
  constexpr std::int64_t kEnough = 1 << 20;
  const std::string tensor = "dims Sq = 64; tensor t: bool[Skv]; ";
  EXPECT_EQ(counts(tensor + "mask t[kv_idx] && kv_idx < 8 || kv_idx < 3;", kEnough),
            (RowCounts{3, 8, Exactness::bound}));
  EXPECT_EQ(counts(tensor + "mask t[kv_idx];", kEnough), (RowCounts{0, 64, Exactness::bound}));
  const std::string window = "dims Sq = 4096; mask q_idx >= kv_idx && q_idx - kv_idx < 100;";
  EXPECT_EQ(counts(window, kEnough), (RowCounts{1, 100}));
  const RowCounts stopped = counts(window, 1 << 12);
  EXPECT_EQ(stopped.exactness, Exactness::stopped);
  EXPECT_LE(stopped.fewest, 1);
  EXPECT_GE(stopped.most, 100);
  EXPECT_LT(stopped.most, 2048) << "large boxes are looked at first";
  target::Deadline::Clock::time_point now{};
  const target::Deadline over(std::chrono::seconds(1),
                              [&now] { return now += std::chrono::seconds(1); });
  const RowCounts late = row_counts(of_clauses(window), &over);
  EXPECT_EQ(late.exactness, Exactness::stopped);
  EXPECT_GE(late.most, 100);
}

// Operations are counted, not boxes: those of a box of 128 x 128 scores are few.
TEST(Blocks, OfThousandsOfDisjuncts) {
  constexpr std::int64_t kEnough = std::int64_t{1} << 20;
  const BlockMap any =
      map_of("dims Sq = 4096; mask any(j in 0..2000: q_idx == kv_idx + j * j);", kEnough);
  EXPECT_EQ(any.exactness, Exactness::exact);
  EXPECT_EQ(any.count(Block::full), 0);
  EXPECT_EQ(any.at(0, 0), Block::partial);
  EXPECT_EQ(any.at(0, 1), Block::empty);
  const BlockMap all =
      map_of("dims Sq = 4096; mask all(j in 0..2000: q_idx != kv_idx + j * j);", kEnough);
  EXPECT_EQ(all.exactness, Exactness::exact);
  EXPECT_EQ(all.count(Block::partial), any.count(Block::partial));
  EXPECT_EQ(all.count(Block::full), any.count(Block::empty));
}

TEST(Blocks, AreNotHalvedWhereOnlyATensorDecides) {
  const BlockMap map = map_of(
      "dims Sq = 16384; tensor t: i32[64]; mask q_idx >= kv_idx; mask any(i in 0..64: q_idx == "
      "t[i]);",
      1 << 20);
  EXPECT_EQ(map.exactness, Exactness::bound);
  EXPECT_EQ(map.at(0, 1), Block::empty);
  EXPECT_EQ(map.at(1, 0), Block::partial);
}

}  // namespace
}  // namespace attn::masks
