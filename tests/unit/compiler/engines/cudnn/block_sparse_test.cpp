// Which pages of columns tiles of rows see, and what becomes of the mask.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "compiler/driver/driver.h"
#include "compiler/engines/cudnn/lower_block_sparse.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/planner/search.h"
#include "runtime/base/check.h"

namespace attn::engines::block_sparse_tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kDims = "dims B = 3, Hq = 4, Hkv = 2, Sq = 512, Skv = 1024, D = 64; ";

ir::Attention attention_of(const std::string& clauses, const std::string& dims = kDims) {
  const support::Source source("f.attn", "attention f { " + dims + clauses + " }");
  diag::Sink sink(source);
  std::optional<ir::Attention> attention = driver::front_end(source, {}, sink);
  ATTN_CHECK(attention.has_value(), diag::to_text(sink));
  return *attention;
}

std::optional<BlockLists> lists_of(const std::string& clauses, const std::string& dims = kDims) {
  return block_lists(*masks::analyzed(attention_of(clauses, dims), {}));
}

TEST(Pages, OfAMapAreItsBlocksAndLeaveNoMask) {
  const auto lists = lists_of(
      "tensor m: bool[Hq, Sq // 128, Skv // 256];"
      "mask m[h, q_idx // 128, kv_idx // 256];");
  ASSERT_TRUE(lists);
  EXPECT_EQ(lists->tile, 128);
  EXPECT_EQ(lists->page, 128);
  EXPECT_EQ(lists->longest, 8);
  EXPECT_TRUE(lists->assumed);
  EXPECT_FALSE(lists->once);
  EXPECT_EQ(lists->listed, 4 * 8 * kAssumedShare);
  EXPECT_EQ(lists->axes, masks::Axes{.head = true});
  EXPECT_TRUE(lists->residual.empty());
}

TEST(Pages, AreAsSmallAsTheBlocksOfAMap) {
  const auto lists = lists_of(
      "tensor m: bool[B, Sq // 64, Skv // 128];"
      "mask m[b, (511 - q_idx) // 64, kv_idx // 128];");
  ASSERT_TRUE(lists);
  EXPECT_EQ(lists->tile, 64);
  EXPECT_EQ(lists->page, 128);
  EXPECT_EQ(lists->axes, masks::Axes{.batch = true});
  EXPECT_TRUE(lists->same_rows && lists->same_columns);
  EXPECT_TRUE(lists->residual.empty());
}

TEST(Pages, KeepWhatIsNotTheSameInABlock) {
  const auto lists = lists_of(
      "tensor m: bool[Sq // 128, Skv // 128]; mask m[q_idx // 128, kv_idx // 128];"
      "mask q_idx % 8 >= kv_idx % 16;");
  ASSERT_TRUE(lists);
  EXPECT_EQ(lists->tile, 128);
  EXPECT_EQ(lists->residual.size(), 1U);
  EXPECT_FALSE(lists->same_rows || lists->same_columns);
}

// An index by what blocks are no multiple of, or shifted against them, differs within a block.
TEST(Pages, AreTheSameOnBlocksOfIndicesAlone) {
  const auto left = [](const std::string& mask) { return lists_of(mask)->residual.size(); };
  EXPECT_EQ(left("mask q_idx // 128 == kv_idx // 128;"), 0U);
  EXPECT_EQ(left("mask (q_idx + 64) // 128 == (kv_idx + 64) // 128;"), 0U);
  EXPECT_EQ(left("mask (q_idx + 1) // 128 == (kv_idx + 1) // 128;"), 1U);
  EXPECT_EQ(left("mask q_idx // 96 == kv_idx // 96;"), 1U);
  EXPECT_EQ(left("mask 2 * q_idx // 256 == kv_idx // 128;"), 0U);
  EXPECT_EQ(left("mask q_idx // 128 == (q_idx + kv_idx) // 512;"), 1U);
}

TEST(Pages, AreCountedWhereIndicesTell) {
  const auto window = lists_of("mask abs(q_idx - kv_idx) <= 64;");
  ASSERT_TRUE(window);
  EXPECT_TRUE(window->once);
  EXPECT_FALSE(window->assumed);
  const auto map = lists_of("mask (q_idx // 128 + kv_idx // 128) % 4 == 0;");
  ASSERT_TRUE(map);
  EXPECT_EQ(map->tile, 128);
  EXPECT_EQ(map->longest, 2);
  EXPECT_EQ(map->listed, 8);
  EXPECT_EQ(to_text(*map), "tiles of 128 rows see up to 2 of 8 pages of 128 columns, 25 % of all");
  const auto both = lists_of(
      "mask kv_idx < 256; tensor m: bool[Sq // 128, Skv // 128];"
      "mask m[q_idx // 128, kv_idx // 128];");
  ASSERT_TRUE(both);
  EXPECT_EQ(both->longest, 2);
  EXPECT_EQ(to_text(*both),
            "tiles of 128 rows see up to 2 of 8 pages of 128 columns, 6 % of all (assumed)");
}

TEST(Pages, AreNotListedWhereAllAreSeen) {
  EXPECT_FALSE(lists_of(""));
  EXPECT_FALSE(lists_of("mask q_idx >= kv_idx;",
                        "dims B = 1, Hq = 1, Hkv = 1, Sq = 128, Skv = 0, D = 64; "));
  EXPECT_FALSE(lists_of("mask (q_idx + kv_idx) % 7 != 0;"));
  EXPECT_FALSE(lists_of("mask q_idx >= kv_idx;",
                        "dims B = 1, Hq = 1, Hkv = 1, Sq = 100, "
                        "Skv = 128, D = 64; "));
  EXPECT_FALSE(lists_of("mask q_idx // 64 == kv_idx;",
                        "dims B = 1, Hq = 1, Hkv = 1, Sq = 128, "
                        "Skv = 64, D = 64; "));
}

// B, Hq, Hkv, Sq, Skv of the entries, and the strides of q and k.
struct Shape {
  std::vector<std::int64_t> dims, q, k;
  bool by_head = false, copies = false;
};

Shape shape_of(const std::string& clauses) {
  const ir::Attention whole = attention_of(clauses);
  const auto tiled = engines::tiled(whole, *block_lists(*masks::analyzed(whole, {})), {});
  ATTN_CHECK(tiled.ok(), tiled.error().message);
  Shape shape{{}, {}, {}, tiled->by_head, tiled->copies_q};
  for (const ir::Dim dim : {ir::Dim::B, ir::Dim::Hq, ir::Dim::Hkv, ir::Dim::Sq, ir::Dim::Skv}) {
    shape.dims.push_back(tiled->attention.dims[dim]);
  }
  const auto& layouts = tiled->attention.layouts;
  const auto& q = layouts.find("q")->second.strides;
  const auto& k = layouts.find("k")->second.strides;
  shape.q.assign(q.begin(), q.end());
  shape.k.assign(k.begin(), k.end());
  return shape;
}

constexpr const char* kBlocks = "mask (q_idx // 128 + kv_idx // 128) % 4 == 0;";
constexpr const char* kBlocksByHead = "mask (q_idx // 128 + kv_idx // 128) % 4 == h;";

TEST(Pages, MakeEachTileABatch) {
  const Shape shape = shape_of(std::string("layout bshd;") + kBlocks);
  EXPECT_THAT(shape.dims, ElementsAre(12, 4, 2, 128, 256));
  EXPECT_THAT(shape.q, ElementsAre(128 * 256, 64, 256, 1));
  EXPECT_THAT(shape.k, ElementsAre(128 * 128, 64, 128, 1));
  EXPECT_FALSE(shape.copies);
}

TEST(Pages, MakeEachHeadABatchWhereListsOrLayoutsWantIt) {
  const Shape layout = shape_of(std::string("layout bhsd;") + kBlocks);
  EXPECT_TRUE(layout.by_head);
  EXPECT_FALSE(layout.copies);
  EXPECT_THAT(layout.dims, ElementsAre(48, 1, 1, 128, 256));
  const Shape lists = shape_of(std::string("layout bshd;") + kBlocksByHead);
  EXPECT_TRUE(lists.by_head && lists.copies);
  EXPECT_THAT(lists.q, ElementsAre(128 * 64, 512 * 64, 64, 1));
  EXPECT_THAT(lists.k, ElementsAre(64, 64, 128, 1));  // pages of two heads overlap
}

std::string refusal(const std::string& clauses, const char* dims = kDims) {
  const auto program =
      driver::lower(attention_of(clauses, dims), "block_sparse", plan::Direction::forward);
  return program.ok() ? "" : program.error().message;
}

TEST(Pages, AreRefusedInWords) {
  const std::string blocks = kBlocks;
  EXPECT_EQ(refusal(blocks), "");
  EXPECT_THAT(refusal("mask kv_idx != 3;"), HasSubstr("less than all blocks"));
  EXPECT_THAT(
      refusal("mask kv_idx < 3;", "dims B = 1, Hq = 1, Hkv = 1, Sq = 100, Skv = 128, D = 8;"),
      HasSubstr("not a multiple of 64"));
  EXPECT_THAT(refusal(blocks + "lengths kv;"), HasSubstr("lengths"));
  EXPECT_THAT(refusal(blocks + "dropout 0.1;"), HasSubstr("random numbers"));
  EXPECT_EQ(refusal(blocks + "dropout 0.1, kv_idx % 3 != q_idx % 3;"), "");
  EXPECT_THAT(refusal(blocks + "layout k: paged(page = 16), v: paged(page = 16);"),
              HasSubstr("not contiguous"));
  EXPECT_THAT(refusal(std::string(kBlocksByHead) + "sink 1.5;"), HasSubstr("sink"));
  const auto backward =
      driver::lower(attention_of(blocks), "block_sparse", plan::Direction::backward);
  ASSERT_FALSE(backward.ok());
  EXPECT_THAT(backward.error().message, HasSubstr("backward cannot skip blocks by a list"));
}

// What is read outside of its tensor is found as without pages.
TEST(Pages, CheckWhatIsGathered) {
  const auto program = driver::lower(attention_of("tensor at: i32[4]; tensor m: bool[4, 8];"
                                                  "mask m[at[q_idx // 128], kv_idx // 128];"),
                                     "block_sparse", plan::Direction::forward);
  ASSERT_TRUE(program.ok()) << program.error().to_text();
  ASSERT_TRUE(program->check.has_value());
  EXPECT_EQ(program->check->faults.size(), 1U);
}

TEST(Pages, AreTakenWhereTheyTakeLess) {
  const auto first = [](const std::string& clauses) {
    const ir::Attention attention = attention_of(
        clauses + "outputs o, lse;", "dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = Sq, D = 128;");
    planner::Search search(attention, "cudnn", {});
    return std::string(search.next().value()->strategy->name);
  };
  EXPECT_EQ(first("tensor m: bool[32, 32]; mask m[q_idx // 128, kv_idx // 128];"), "block_sparse");
  EXPECT_EQ(first("mask (q_idx // 128 * 7 + kv_idx // 128 * 5) % 8 == 0;"), "block_sparse");
  EXPECT_EQ(first("mask q_idx >= kv_idx;"), "composite");
  EXPECT_EQ(first("mask abs(q_idx - kv_idx) < 256;"), "composite");
}

TEST(Pages, WithStridesOf0AreRefused) {
  const auto refused = driver::lower(attention_of("tensor m: bool[Sq // 64, Skv // 64];"
                                                  "mask m[q_idx // 64, kv_idx // 64];"
                                                  "layout k: strides(Skv * D, 0, D, 1);"),
                                     "block_sparse", plan::Direction::forward);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().to_text(), HasSubstr("`k` has a stride of 0"));
}

}  // namespace
}  // namespace attn::engines::block_sparse_tests
