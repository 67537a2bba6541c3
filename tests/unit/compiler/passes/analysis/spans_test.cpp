#include "compiler/passes/analysis/spans.h"

#include <gtest/gtest.h>

#include <string>

#include "compiler/passes/rewrite/simplify.h"
#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::passes {
namespace {

VisibleColumns columns_of(const std::string& clauses) {
  const sema::Analyzed analyzed =
      sema::analyze_body("dims B = 2, Hq = 4, Hkv = 2, Sq = 16, Skv = 16, D = 8; " + clauses);
  EXPECT_TRUE(analyzed.attention.has_value()) << analyzed.text;
  return visible_columns(analyzed.attention ? simplify(*analyzed.attention) : ir::Attention());
}

TEST(Spans, OfAWindow) {
  const std::vector<Spans> rows = spans_of_rows(columns_of("mask 0 <= q_idx - kv_idx < 4;"));
  ASSERT_EQ(rows.size(), 16U);
  EXPECT_EQ(rows[0], (Spans{{0, 1, true}}));
  EXPECT_EQ(rows[3], (Spans{{0, 4, true}}));
  EXPECT_EQ(rows[15], (Spans{{12, 16, true}}));
}

TEST(Spans, ThatMeetAreOne) {
  const std::vector<Spans> rows =
      spans_of_rows(columns_of("mask kv_idx < 4 || 0 <= q_idx - kv_idx < 4;"));
  EXPECT_EQ(rows[2], (Spans{{0, 4, true}}));
  EXPECT_EQ(rows[7], (Spans{{0, 8, true}}));
  EXPECT_EQ(rows[9], (Spans{{0, 4, true}, {6, 10, true}}));
}

TEST(Spans, KeepWhatIsKnownApart) {
  const VisibleColumns columns = columns_of(
      "tensor seen: bool[Skv]; mask q_idx == kv_idx || seen[kv_idx] && q_idx >= kv_idx;");
  EXPECT_EQ(RowSpans(columns).of(5), (Spans{{0, 5, false}, {5, 6, true}}));
}

TEST(Spans, MayDifferByBatchAndHead) {
  const VisibleColumns columns = columns_of("mask b == 1 || kv_idx < h;");
  RowSpans rows(columns);
  EXPECT_EQ(rows.axes(), (Axes{.batch = true, .head = true}));
  EXPECT_EQ(rows.of(0), Spans{});
  rows.look_at(0, 3);
  EXPECT_EQ(rows.of(0), (Spans{{0, 3, true}}));
  rows.look_at(1, 3);
  EXPECT_EQ(rows.of(0), (Spans{{0, 16, true}}));
}

TEST(Spans, AreSearchedFor) {
  const VisibleColumns columns = columns_of("mask kv_idx + kv_idx // 4 <= q_idx;");
  EXPECT_EQ(RowSpans(columns).of(9), (Spans{{0, 8, true}}));
  EXPECT_EQ(RowSpans(columns).of(10), (Spans{{0, 9, true}}));
}

TEST(Spans, OfWhatHasNoValueAreAllColumns) {
  const VisibleColumns columns = columns_of("mask kv_idx < 8 // (q_idx - 2);");
  RowSpans rows(columns);
  EXPECT_EQ(rows.of(2), (Spans{{0, 16, false}}));
  EXPECT_EQ(rows.of(4), (Spans{{0, 4, true}}));
  const VisibleColumns guarded = columns_of("mask kv_idx < where(q_idx > 2, 8 // (q_idx - 2), 1);");
  EXPECT_EQ(RowSpans(guarded).of(2), (Spans{{0, 1, true}}));
}

TEST(Spans, OfTensorsAndParamsAreNotKnown) {
  EXPECT_TRUE(is_static(columns_of("mask q_idx >= kv_idx;")));
  EXPECT_FALSE(is_static(columns_of("tensor n: i32[B]; mask kv_idx < n[b];")));
  EXPECT_FALSE(is_static(columns_of("param p: i32; mask kv_idx < p;")));
  // Unknown tensor elements are not part of any interval.
  EXPECT_TRUE(is_static(columns_of("tensor ids: i32[Skv]; mask ids[kv_idx] == ids[q_idx];")));
}

}  // namespace
}  // namespace attn::passes
