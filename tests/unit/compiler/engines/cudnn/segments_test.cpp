// Which masks tell documents apart, and what becomes of the rest.
#include "compiler/engines/shared/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "compiler/driver/driver.h"
#include "compiler/engines/cudnn/lower_segments.h"
#include "compiler/planner/search.h"
#include "runtime/base/check.h"

namespace attn::engines::segments_tests {
namespace {

using ::testing::HasSubstr;

ir::Attention attention_of(const std::string& clauses) {
  const support::Source source("f.attn", "attention f { " + clauses + " }");
  diag::Sink sink(source);
  std::optional<ir::Attention> attention = driver::front_end(source, {}, sink);
  ATTN_CHECK(attention.has_value(), diag::to_text(sink));
  return *attention;
}

constexpr const char* kDims = "dims B = 3, Hq = 4, Hkv = 2, Sq = 100, Skv = Sq, D = 64; ";
constexpr const char* kOneBatch = "dims B = 1, Hq = 4, Hkv = 2, Sq = 100, Skv = Sq, D = 64; ";
constexpr const char* kDoc = "tensor doc: i32[B, Skv] monotone runs(7); ";
constexpr const char* kSame = "mask doc[b, q_idx] == doc[b, kv_idx]; ";

std::optional<Segments> found(const std::string& clauses) {
  return segments(attention_of(kDims + clauses));
}

TEST(Documents, AreFoundByAMonotoneTensorWithRuns) {
  const auto documents = found(std::string(kDoc) + kSame);
  ASSERT_TRUE(documents);
  EXPECT_EQ(documents->tensor, "doc");
  EXPECT_TRUE(documents->by_batch);
  EXPECT_EQ(documents->most, 7);
  EXPECT_EQ(documents->longest, 100);
  EXPECT_TRUE(documents->attention.masks.empty());
  EXPECT_EQ(documents->attention.dims[ir::Dim::B], 21);
  EXPECT_EQ(documents->attention.dims[ir::Dim::Sq], 100);
}

TEST(Documents, MayBeTheSameInAllBatchesAndBounded) {
  const auto documents = found(
      "tensor doc: i64[Skv] monotone runs(Skv // 10, 4 * 4); mask doc[kv_idx] == doc[q_idx];");
  ASSERT_TRUE(documents);
  EXPECT_FALSE(documents->by_batch);
  EXPECT_EQ(documents->most, 10);
  EXPECT_EQ(documents->longest, 16);
  EXPECT_EQ(documents->attention.dims[ir::Dim::Skv], 16);
}

TEST(Documents, KeepWhatDependsOnDistancesBatchesAndHeads) {
  const std::string given =
      std::string(kDoc) + "tensor slopes: f32[B, Hq]; learn t: f32[199, Hq]; ";
  const auto documents = found(given + kSame +
                               "mask q_idx >= kv_idx && q_idx - kv_idx < 20;"
                               "score score * slopes[b, h] + t[q_idx - kv_idx + 99, h];");
  ASSERT_TRUE(documents);
  const ir::Attention& each = documents->attention;
  EXPECT_EQ(each.masks.size(), 2U);
  EXPECT_EQ(to_source(each, each.score), "score * slopes[b // 7, h] + t[q_idx - kv_idx + 99, h]");
}

// Each is as it should be but for one thing.
TEST(Documents, AreNotFoundInAnythingElse) {
  EXPECT_FALSE(found("tensor doc: i32[B, Skv] monotone; " + std::string(kSame)));
  EXPECT_FALSE(found("tensor doc: i32[B, Skv] runs(7); " + std::string(kSame)));
  EXPECT_FALSE(found("tensor doc: f32[B, Skv] monotone runs(7); " + std::string(kSame)));
  EXPECT_FALSE(found("tensor doc: i32[B, 101] monotone runs(7); " + std::string(kSame)));
  EXPECT_FALSE(
      found("tensor doc: i32[Hq, Skv] monotone runs(7);"
            "mask doc[h, q_idx] == doc[h, kv_idx];"));
  const std::string doc = kDoc, same = kSame;
  EXPECT_FALSE(found(doc + "mask doc[b, q_idx] >= doc[b, kv_idx];"));
  EXPECT_FALSE(found(doc + "mask doc[b, q_idx] == doc[b, kv_idx] || kv_idx < 4;"));
  EXPECT_FALSE(found(doc + "mask doc[b, q_idx // 2] == doc[b, kv_idx // 2];"));
  EXPECT_FALSE(found(doc + same + "mask kv_idx < 50;"));
  EXPECT_FALSE(found(doc + same + "mask doc[b, kv_idx] >= 0;"));
  EXPECT_FALSE(found(doc + same + "score score + 0.1 * q_idx;"));
  EXPECT_FALSE(found(doc + same + "lengths kv;"));
  EXPECT_FALSE(found(doc + same + "dropout 0.1;"));
  EXPECT_FALSE(found(doc + same + "dropout 0.1, kv_idx % 2 == 0;"));
  EXPECT_FALSE(segments(
      attention_of("dims B = 3, Hq = 4, Hkv = 2, Sq = 50, Skv = 100, D = 64; " + doc + same)));
  EXPECT_FALSE(found("tensor doc: i32[B, Skv] monotone runs(7, 14); " + same));  // 98 in all
}

std::string refusal(const std::string& clauses, bool backward = false,
                    const std::string& dims = kDims) {
  const ir::Attention attention = attention_of(dims + kDoc + kSame + clauses);
  const auto documents = segments(attention);
  if (!documents) return "no documents";
  const auto ragged = engines::ragged(attention, *documents, backward);
  return ragged.ok() ? "" : ragged.error().message;
}

TEST(Documents, WantRowsOfAllBatchesInOneList) {
  EXPECT_EQ(refusal("layout bshd;"), "");
  EXPECT_EQ(refusal("layout packed_qkv;"), "");
  EXPECT_THAT(refusal("layout bhsd;", false, kOneBatch), HasSubstr("one after the other"));
  EXPECT_THAT(refusal("layout bhsd;"), HasSubstr("not evenly spaced"));
  EXPECT_THAT(refusal("layout sbhd;"), HasSubstr("not evenly spaced"));
  EXPECT_THAT(refusal("layout k: paged(page = 16), v: paged(page = 16);"),
              HasSubstr("not evenly spaced"));
}

TEST(Documents, HaveNoMaxAndNoLearnedGradients) {
  EXPECT_THAT(refusal("outputs o, max;"), HasSubstr("max"));
  const std::string learned = "learn t: f32[Hq]; score score * t[h];";
  EXPECT_EQ(refusal(learned), "");
  EXPECT_THAT(refusal(learned, true), HasSubstr("learned"));
  EXPECT_EQ(refusal(learned + "grad q;", true), "");
  EXPECT_THAT(refusal(learned + "grad q, t;", true), HasSubstr("learned"));
}

// Where it is not said how many there are, they are found by pages.
TEST(Documents, AreTakenWhereTheyTakeLess) {
  const auto first = [](const std::string& runs) {
    const ir::Attention attention = attention_of(
        "dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = Sq, D = 128;"
        "tensor doc: i32[Skv] monotone " +
        runs + "; mask doc[q_idx] == doc[kv_idx]; outputs o, lse;");
    planner::Search search(attention, "cudnn", {});
    return std::string(search.next().value()->strategy->name);
  };
  EXPECT_EQ(first("runs(8, 512)"), "segments");
  EXPECT_EQ(first("runs(8)"), "segments");
  EXPECT_EQ(first(""), "block_sparse");
}

// Packed sequences have one row after the other, so none can be read again.
TEST(Documents, WithStridesOf0AreRefused) {
  for (const char* layout :
       {"layout k: strides(0, 0, 0, 1); ", "layout v: strides(Sq * D, 0, D, 1); "}) {
    const auto refused = driver::lower(attention_of(std::string(kOneBatch) + kDoc + kSame + layout),
                                       "segments", plan::Direction::forward);
    ASSERT_FALSE(refused.ok()) << layout;
    EXPECT_THAT(refused.error().to_text(), HasSubstr("has a stride of 0")) << layout;
  }
}

}  // namespace
}  // namespace attn::engines::segments_tests
