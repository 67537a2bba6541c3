// What is estimated is what the programs do.
#include "compiler/sharding/estimate.h"

#include <gtest/gtest.h>

#include "compiler/driver/driver.h"
#include "compiler/sharding/choose.h"
#include "compiler/sharding/rank_program.h"
#include "runtime/ranks/exchanges.h"

namespace attn::sharding {
namespace {

ir::Attention attention_of(const std::string& text) {
  const support::Source source("test.attn", text);
  diag::Sink sink(source);
  auto attention = driver::front_end(source, {}, sink);
  EXPECT_TRUE(attention.has_value()) << diag::to_text(sink);
  return attention ? *attention : ir::Attention();
}

double bytes_of(const std::vector<ranks::Exchange>& exchanges,
                std::vector<ranks::Message> ranks::Exchange::*way,
                const ranks::Division& division) {
  std::int64_t bytes = 0;
  for (const ranks::Exchange& exchange : exchanges) {
    for (const ranks::Message& message : exchange.*way) bytes += ranks::bytes_of(message, division);
  }
  return static_cast<double>(bytes);
}

void expect_equal_bytes(const std::string& text, int ranks) {
  const ir::Attention attention = attention_of(text);
  const WorkMap map = work_map(attention, ranks, nullptr);
  const Estimating with = estimating(attention, map, {}, {});
  for (const Sharding& sharding : shardings(attention, ranks, map)) {
    SCOPED_TRACE(sharding.to_text());
    const Estimate made = estimate(sharding, with);
    ranks::Division division = rank_programs(sharding, map, attention).division;
    ranks::add_exchanges(division);
    for (const ranks::Program& program : division.ranks) {
      std::vector<ranks::Exchange> forward = program.inputs, backward = program.backward_inputs;
      forward.push_back(program.results);
      backward.push_back(program.gradients);
      const auto sum = [&](const std::vector<ranks::Exchange>& all, auto way) {
        return bytes_of(all, way, division);
      };
      const RankEstimate& rank = made.ranks[static_cast<std::size_t>(program.rank)];
      EXPECT_DOUBLE_EQ(rank.received.bytes(), sum(forward, &ranks::Exchange::receives));
      EXPECT_DOUBLE_EQ(rank.sent.bytes(), sum(forward, &ranks::Exchange::sends));
      EXPECT_DOUBLE_EQ(rank.received_backward.bytes(), sum(backward, &ranks::Exchange::receives));
      EXPECT_DOUBLE_EQ(rank.sent_backward.bytes(), sum(backward, &ranks::Exchange::sends));
    }
  }
}

TEST(Estimate, CountsTheBytesOfMessages) {
  expect_equal_bytes(
      "attention f { dims B = 2, Hq = 4, Hkv = 2, Sq = 64, Dqk = 16, Dv = 8; outputs o, lse; "
      "mask q_idx >= kv_idx && (q_idx - kv_idx < 9 || q_idx == 50 || kv_idx < 3); }",
      4);
  expect_equal_bytes(
      "attention f { dims B = 3, Hq = 4, Hkv = 2, Sq = 2, Skv = 64, D = 8; outputs o, lse; }", 4);
  expect_equal_bytes(
      "attention f { dims B = 1, Hq = 4, Hkv = 2, Sq = 64, D = 8; outputs o, sum_exp; grad q, k; "
      "mask q_idx >= kv_idx; }",
      4);
  expect_equal_bytes("attention f { dims B = 1, Hq = 2, Sq = 64, D = 8; normalize sigmoid; }", 2);
}

// To keys that arrive, own ones are copied: that takes its time, if links take none.
TEST(Estimate, CountsCopiesOfOwnKeys) {
  const ir::Attention attention = attention_of(
      "attention f { dims B = 1, Hq = 8, Hkv = 4, D = 64, Sq = 32768; "
      "mask q_idx >= kv_idx && q_idx - kv_idx < 256; }");
  const WorkMap map = work_map(attention, 2, nullptr);
  const Links links{{"free", 1e9, 0}, {"free", 1e9, 0}, 8};
  const Estimating with = estimating(attention, map, {}, links);
  Sharding sharding{2, 1, false, 0, contiguous(map.rows, 2), contiguous(map.keys, 2)};
  const auto beside = [&] {
    const Estimate made = estimate(sharding, with);
    std::vector<double> ms;
    for (const RankEstimate& rank : made.ranks) ms.push_back(rank.forward_ms - rank.compute_ms);
    return ms;
  };
  const auto copying = [&](double keys) {
    return with.forward.moving(2 * keys * 4 * (64 + 64) * 2);
  };
  EXPECT_NEAR(beside()[0], 0, 1e-4) << "it sees no keys of others";
  EXPECT_NEAR(beside()[1], copying(16384), 1e-4);
  sharding.arrivals = 1;
  sharding.rows_wait = true;
  EXPECT_NEAR(beside()[1], copying(256), 1e-4) << "those that waiting rows see";
}

Sharding chosen(const std::string& clauses, int size, int ranks) {
  const ir::Attention attention = attention_of(
      "attention f { dims B = 1, Hq = 32, Hkv = 8, D = 128, Sq = " + std::to_string(size) +
      "; outputs o, lse; " + clauses + "}");
  const WorkMap map = work_map(attention, ranks, nullptr);
  return choose(attention, ranks, estimating(attention, map, {}, {}))->sharding;
}

// Training on 4 GPUs, what is sent hides behind a part of own keys; nothing is sent in a forward.
TEST(Choose, LeavesOwnKeysForTheEndWhereResultsAreSent) {
  const auto leaves = [](const std::string& clauses, int size) {
    return chosen("mask q_idx >= kv_idx; " + clauses, size, 4).own_last;
  };
  EXPECT_TRUE(leaves("grad q, k, v; shard sequence;", 32768));
  EXPECT_FALSE(leaves("shard sequence;", 32768));
  EXPECT_FALSE(leaves("grad q, k, v; shard sequence;", 131072)) << "it takes 2 % of all";
  EXPECT_FALSE(leaves("grad q, k, v; shard heads;", 32768));
}

// Most rows of a window need no keys of others; of a full mask, all do.
TEST(Choose, LetsRowsWaitWhereOthersCanBegin) {
  const Sharding window = chosen(
      "mask q_idx >= kv_idx && q_idx - kv_idx < 4096; grad q, k, v; shard sequence;", 65536, 4);
  EXPECT_TRUE(window.rows_wait);
  EXPECT_EQ(window.arrivals, 1);
  EXPECT_FALSE(chosen("shard sequence;", 65536, 4).rows_wait);
}

// What a mask hides is counted in the map; what it costs to evaluate is not, because kernels do so
// in few blocks.
TEST(Speed, IsThatOfProductsWhateverTheMask) {
  const std::string sizes = "attention f { dims B = 1, Hq = 8, Sq = 4096, D = 128; ";
  const auto speed = [&](const std::string& clauses) {
    return Speed(attention_of(sizes + clauses + "}"), target::Context())
        .milliseconds({1e5, 32, 256, 0});
  };
  EXPECT_EQ(speed(""), speed("tensor doc: i32[B, Sq]; mask doc[b, q_idx] == doc[b, kv_idx];"));
  EXPECT_GT(speed("score tanh(score);"), speed(""));
}

// A kernel more, of as much in all, takes half of its longest block of threads more.
TEST(Speed, CountsWhatTheLastBlockOfThreadsTakes) {
  const Speed speed(attention_of("attention f { dims B = 1, Hq = 8, Sq = 4096, D = 128; }"),
                    target::Context());
  const double whole = speed.milliseconds({1e5, 32, 256, 0});
  const double halves = 2 * speed.milliseconds({5e4, 32, 128, 0});
  // Where it takes longer than all others together.
  const double tile =
      (speed.milliseconds({0, 2e6, 256, 0}) - speed.milliseconds({0, 1e6, 256, 0})) / 1e6;
  EXPECT_GT(halves - whole, 0.45 * 32 * tile);
  EXPECT_LT(halves - whole, 0.55 * 32 * tile + 0.02);
}

TEST(Links, AreNamesOrSpeeds) {
  EXPECT_EQ(parse_link("nvlink")->gigabytes, 263);
  EXPECT_EQ(parse_link("400g")->gigabytes, 45);
  EXPECT_EQ(parse_link("120.5")->gigabytes, 120.5);
  for (const char* text : {"", "g", "-1", "0", "nan", "fast", "1e12"})
    EXPECT_FALSE(parse_link(text).ok()) << text;
}

}  // namespace
}  // namespace attn::sharding
