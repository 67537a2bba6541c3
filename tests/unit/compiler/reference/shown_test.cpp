#include "compiler/reference/shown.h"

#include <gmock/gmock.h>

#include "compiler/driver/driver.h"

namespace attn::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ir::Attention attention_of(const std::string& clauses) {
  const support::Source source(
      "t.attn",
      "attention t { dims B = 2, Hq = 3, Hkv = 1, Sq = 8, Skv = 8, D = 4; " + clauses + " }");
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, {}, sink);
  EXPECT_TRUE(attention.has_value()) << diag::to_text(sink);
  return attention.value();
}

double counted(const std::string& clauses, const Inputs& inputs = {}, double most = 0x1p29) {
  const Result<Shown> shown = shown_scores(attention_of(clauses), inputs, most);
  EXPECT_TRUE(shown.ok()) << (shown.ok() ? "" : shown.error().message);
  return shown.ok() ? shown->scores : 0;
}

TEST(Shown, CountsOneByOne) {
  EXPECT_EQ(counted(""), 2 * 3 * 64);
  EXPECT_EQ(counted("mask q_idx >= kv_idx;"), 2 * 3 * 36);
  EXPECT_EQ(counted("mask kv_idx % 2 == 0; mask q_idx < 4;"), 2 * 3 * 16);
  EXPECT_EQ(counted("mask h == 1 || b == 0;"), (3 + 1) * 64);
}

// Two segments of 3 and 5 in one batch, one of 8 in the other.
TEST(Shown, CountsDocumentsByTheirValues) {
  Inputs inputs;
  inputs.tensors["doc"] = {DType::i32, {2, 8}, {0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2}};
  const std::string clauses = "tensor doc: i32[B, Skv]; mask doc[b, q_idx] == doc[b, kv_idx];";
  EXPECT_EQ(counted(clauses, inputs), 3 * (9 + 25 + 64));
  EXPECT_THAT(tensors_that_hide(attention_of(clauses)), ElementsAre("doc"));
}

TEST(Shown, CountsLengths) {
  Inputs inputs;
  inputs.tensors["lengths_q"] = {DType::i32, {2}, {8, 2}};
  inputs.tensors["lengths_kv"] = {DType::i32, {2}, {5, 0}};
  EXPECT_EQ(counted("lengths q, kv;", inputs), 3 * 8 * 5);
  EXPECT_EQ(counted("lengths q, kv; mask q_idx >= kv_idx;", inputs), 3 * (1 + 2 + 3 + 4 + 5 * 4));
}

TEST(Shown, RowsStandForOthersWhereThereIsTooMuchToDo) {
  const auto shown = shown_scores(attention_of("mask kv_idx < 5;"), {}, 100);
  ASSERT_TRUE(shown.ok());
  EXPECT_GT(shown->every, 1);
  EXPECT_EQ(shown->scores, 2 * 3 * 8 * 5);
}

TEST(Shown, WhatIsMissingOrHasNoValueIsAnError) {
  const ir::Attention attention =
      attention_of("tensor t: i32[4]; mask t[kv_idx] == 0; mask kv_idx < 4;");
  EXPECT_THAT(shown_scores(attention, {}).error().message, HasSubstr("t is missing"));
  Inputs inputs;
  inputs.tensors["t"] = {DType::i32, {4}, {0, 1, 0, 1}};
  const auto hidden = shown_scores(attention, inputs);
  ASSERT_TRUE(hidden.ok()) << "hidden by another mask";
  EXPECT_EQ(hidden->scores, 2 * 3 * 8 * 2);
  const ir::Attention nested =
      attention_of("tensor at: i32[8]; tensor t: i32[4]; mask t[at[kv_idx]] == 0;");
  inputs.tensors["at"] = {DType::i32, {8}, {0, 1, 2, 3, 4, 5, 6, 7}};
  EXPECT_THAT(shown_scores(nested, inputs).error().message, HasSubstr("outside 0..3"));
}

}  // namespace
}  // namespace attn::reference
