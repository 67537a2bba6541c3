#include "compiler/sharding/part_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/driver/driver.h"
#include "compiler/ir/random_dropout.h"
#include "tests/unit/compiler/sharding/reading.h"

namespace attn::sharding::part_attention_tests {
namespace {

using ir::Dim;
using ::testing::HasSubstr;

// The text can be read again.
std::string text_of(const PartAttention& part) {
  const std::string text = to_text(part.attention);
  const auto parsed = ir::parse(text);
  EXPECT_TRUE(parsed.ok()) << text;
  if (parsed.ok()) {
    EXPECT_EQ(to_text(*parsed), text);
    EXPECT_TRUE(ir::verify(*parsed).ok());
  }
  return text;
}

std::string mask_of(const PartAttention& part) {
  if (part.attention.masks.empty()) return "everything";
  return to_source(part.attention, part.attention.masks.front());
}

const char* const kCausal = "mask q_idx >= kv_idx;";

TEST(PartAttention, HasAdjacentRowsAsOffsets) {
  const ir::Attention whole = read(kCausal);
  const auto part = [&](Intervals rows, Intervals keys) {
    return part_attention(whole, {0, std::move(rows), std::move(keys)}, {1, 2});
  };
  EXPECT_EQ(mask_of(part({{16, 32}}, {{16, 32}})), "q_idx >= kv_idx");
  EXPECT_EQ(mask_of(part({{16, 32}}, {{0, 16}})), "everything");
  EXPECT_EQ(mask_of(part({{16, 32}}, {{8, 24}})), "q_idx + 8 >= kv_idx");
  EXPECT_EQ(mask_of(part({{8, 24}}, {{16, 32}})), "q_idx >= kv_idx + 8");
  const PartAttention of_some = part({{0, 8}, {56, 64}}, {{0, 64}});
  EXPECT_EQ(of_some.attention.dims[Dim::Sq], 16);
  EXPECT_EQ(of_some.attention.dims[Dim::Hq], 2);
  EXPECT_EQ(of_some.attention.dims[Dim::Hkv], 1);
  EXPECT_EQ(mask_of(of_some), "where(q_idx < 8, q_idx, q_idx + 48) >= kv_idx");
  EXPECT_TRUE(of_some.numbers.empty());
  text_of(of_some);
}

// What differs only by where it is in the whole is the same.
TEST(PartAttention, OfTheSameWindowIsTheSame) {
  for (const char* const clauses :
       {"mask q_idx - kv_idx < 9 && kv_idx <= q_idx;", "score score * (kv_idx - q_idx);",
        "score score - 0.5 * abs(q_idx - kv_idx); mask 3 > q_idx - kv_idx && q_idx != kv_idx + "
        "1;"}) {
    const ir::Attention whole = read(clauses);
    const auto text = [&](std::int64_t row, std::int64_t key) {
      const sharding::Part part{{0, {{row, row + 16}}, {{key, key + 24}}}};
      return text_of(part_attention(whole, part, {0, 4}));
    };
    EXPECT_EQ(text(16, 8), text(40, 32)) << clauses;
    EXPECT_NE(text(16, 8), text(40, 40)) << clauses;
  }
}

TEST(PartAttention, ReadsTheNumbersOfManyPieces) {
  Intervals rows;
  for (std::int64_t row = 0; row < 64; row += 8) rows.push_back({row, row + 2});
  const PartAttention part =
      part_attention(read("tensor row_numbers: f32[Sq]; score score + row_numbers[q_idx]; mask "
                          "q_idx >= kv_idx;"),
                     {0, rows, {{0, 64}}}, {0, 4});
  EXPECT_EQ(mask_of(part), "row_numbers_[q_idx] >= kv_idx");
  EXPECT_EQ(part.numbers.at("row_numbers_").values.at(3), 9);
  EXPECT_THAT(text_of(part), HasSubstr("tensor row_numbers_: i32["));
}

// Heads, lengths and random numbers are those of the whole attention.
TEST(PartAttention, SeesTheWholeAttention) {
  const ir::Attention whole = read(
      "learn sinks: f32[Hq]; lengths q, kv; sink sinks[h]; dropout 0.5; score score * (h + 1);");
  Part part{{0, {{8, 16}}, {{0, 32}}}};
  const PartAttention without = part_attention(whole, part, {2, 3});
  EXPECT_FALSE(without.attention.sink.has_value());
  EXPECT_EQ(without.attention.find_tensor("sinks"), nullptr);
  EXPECT_FALSE(without.attention.lengths_q || without.attention.lengths_kv);
  EXPECT_EQ(without.renamed.at("lengths_kv"), "whole_lengths_kv");
  EXPECT_THAT(to_source(without.attention, without.attention.score), HasSubstr("h + 4 + 1"));
  EXPECT_THAT(text_of(without), HasSubstr("dropout 0.5 origin %"));
  part.sink = true;
  EXPECT_TRUE(part_attention(whole, part, {2, 3}).attention.sink.has_value());
  part.rows = part.keys = {{0, 64}};
  EXPECT_TRUE(part_attention(whole, part, {2, 3}).attention.lengths_q);
}

// A list without any would be one of all.
TEST(PartAttention, OfNoWantedGradientGivesTheOneThatTakesLeast) {
  const ir::Attention whole = read("learn sinks: f32[Hq]; sink sinks[h]; grad sinks;");
  Part part{{0, {{0, 32}}, {{32, 64}}}};
  EXPECT_EQ(part_attention(whole, part, {0, 4}).attention.gradients, std::vector<std::string>{"v"});
  part.sink = true;
  EXPECT_EQ(part_attention(whole, part, {0, 4}).attention.gradients,
            std::vector<std::string>{"sinks"});
}

// A part without the sink has statistics without it, for those with it; sums need their maxima.
TEST(PartAttention, OfNoSinkHasOtherStatistics) {
  const ir::Attention whole = read("sink 1.0; outputs o, sum_exp_with_sink, lse_without_sink;");
  Part part{{0, {{0, 32}}, {{32, 64}}}};
  const PartAttention without = part_attention(whole, part, {0, 4});
  EXPECT_TRUE(without.attention.wants_max && without.attention.wants_sum_exp);
  EXPECT_FALSE(without.attention.wants_max_with_sink || without.attention.wants_sum_exp_with_sink);
  EXPECT_EQ(without.renamed.at("max_with_sink"), "max");
  EXPECT_EQ(without.renamed.at("sum_exp_with_sink"), "sum_exp");
  EXPECT_EQ(without.renamed.at("lse_without_sink"), "lse");
  part.sink = true;
  const PartAttention with = part_attention(whole, part, {0, 4});
  EXPECT_TRUE(with.attention.wants_max_with_sink && with.attention.wants_sum_exp_with_sink);
  EXPECT_TRUE(with.attention.wants_lse_without_sink && with.renamed.empty());
}

// A part that is the whole draws its own numbers; kernels draw those of others for 32 keys at a
// time.
TEST(PartAttention, DrawsElsewhereUnlessItIsTheWhole) {
  const ir::Attention whole = read("dropout 0.5;");
  const auto draws_elsewhere = [&](Intervals rows, Intervals keys, Interval heads) {
    const Part part{{0, std::move(rows), std::move(keys)}};
    return part_attention(whole, part, heads).attention.dropout->origin.has_value();
  };
  EXPECT_FALSE(draws_elsewhere({{0, 64}}, {{0, 64}}, {0, 4}));
  EXPECT_TRUE(draws_elsewhere({{0, 64}}, {{0, 64}}, {0, 2}));
  EXPECT_TRUE(draws_elsewhere({{0, 32}}, {{0, 64}}, {0, 4}));
  EXPECT_TRUE(draws_elsewhere({{0, 64}}, {{32, 64}}, {0, 4}));
}

TEST(PartAttention, DrawsFor32KeysAtATime) {
  const ir::Attention whole = read("dropout 0.5;");
  const auto draws = [&](Intervals rows, Intervals keys) {
    const Part part{{0, std::move(rows), std::move(keys)}};
    return ir::check_draws_by_32(part_attention(whole, part, {0, 4}).attention).ok();
  };
  EXPECT_TRUE(draws({{3, 19}, {40, 41}}, {{32, 64}}));
  EXPECT_TRUE(draws({{0, 64}}, {{0, 40}}));
  EXPECT_FALSE(draws({{0, 64}}, {{16, 64}}));
  EXPECT_FALSE(draws({{0, 64}}, {{0, 16}, {32, 64}}));
  EXPECT_FALSE(draws({{0, 2}, {4, 6}, {8, 10}, {12, 14}, {16, 18}}, {{0, 64}}));
  const ir::Attention wide = [] {
    ir::Attention attention = read("dropout 0.5;");
    attention.dims.set(Dim::Skv, 256);
    return attention;
  }();
  const Part pieces{{0, {{0, 64}}, {{0, 32}, {96, 160}, {224, 256}}}};
  EXPECT_TRUE(ir::check_draws_by_32(part_attention(wide, pieces, {0, 4}).attention).ok());
}

}  // namespace
}  // namespace attn::sharding::part_attention_tests
