// What is estimated is what the programs do.
#include "compiler/sharding/estimate.h"

#include <gtest/gtest.h>

#include "compiler/driver/driver.h"
#include "compiler/sharding/choose.h"
#include "compiler/sharding/rank_program.h"

namespace attn::sharding {
namespace {

using ir::Dim;

ir::Attention read(const std::string& text) {
  const support::Source source("test.attn", text);
  diag::Sink sink(source);
  auto attention = driver::front_end(source, {}, sink);
  EXPECT_TRUE(attention.has_value()) << diag::to_text(sink);
  return attention ? *attention : ir::Attention();
}

// Bytes of a message: 16 bits an element, but for statistics and what is a part of a sum.
double bytes_of(const Message& message, const Sharding& sharding, const ir::Attention& attention) {
  double bytes = 0;
  for (const std::string_view name : message.tensors) {
    const Carried& as = carried(name);
    const std::int64_t group = attention.dims[Dim::Hq] / attention.dims[Dim::Hkv];
    const std::int64_t heads = message.key_heads.size() * (as.of_rows ? group : 1);
    for (const std::int64_t index : numbers(message.indices)) {
      const bool travels = as.of_rows && sharding.row_travels(index / sharding.rows.blocks.unit);
      const bool is_key = name == "dk" || name == "dv";
      const bool several = sharding.teams() > 1 && (is_key ? !sharding.rows_travel : travels);
      const bool result = name == "o" || name == "dq" || is_key;
      const double element = !as.width || (result && several) ? 4 : 2;
      bytes += element * static_cast<double>(attention.dims[Dim::B] * heads *
                                             (as.width ? attention.dims[*as.width] : 1));
    }
  }
  return bytes;
}

double bytes_of(const std::vector<Exchange>& exchanges, std::vector<Message> Exchange::*way,
                const Sharding& sharding, const ir::Attention& attention) {
  double bytes = 0;
  for (const Exchange& exchange : exchanges) {
    for (const Message& message : exchange.*way) bytes += bytes_of(message, sharding, attention);
  }
  return bytes;
}

void expect_equal_bytes(const std::string& text, int ranks) {
  const ir::Attention attention = read(text);
  const WorkMap map = work_map(attention, ranks, nullptr);
  const Estimating with = estimating(attention, map, {}, {});
  for (const Sharding& sharding : shardings(attention, ranks, map)) {
    SCOPED_TRACE(sharding.to_text());
    const Estimate made = estimate(sharding, with);
    for (const RankProgram& program : rank_programs(sharding, map, attention)) {
      std::vector<Exchange> forward = program.inputs, backward = program.backward_inputs;
      forward.push_back(program.results);
      backward.push_back(program.gradients);
      const auto sum = [&](const std::vector<Exchange>& all, auto way) {
        return bytes_of(all, way, sharding, attention);
      };
      const RankEstimate& rank = made.ranks[static_cast<std::size_t>(program.rank)];
      EXPECT_DOUBLE_EQ(rank.received.bytes(), sum(forward, &Exchange::receives));
      EXPECT_DOUBLE_EQ(rank.sent.bytes(), sum(forward, &Exchange::sends));
      EXPECT_DOUBLE_EQ(rank.received_backward.bytes(), sum(backward, &Exchange::receives));
      EXPECT_DOUBLE_EQ(rank.sent_backward.bytes(), sum(backward, &Exchange::sends));
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
