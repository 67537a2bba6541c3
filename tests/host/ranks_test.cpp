// What ranks do, as the runtime schedules it: moves and merges by the kernels themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "compiler/driver/driver.h"
#include "tests/host/ranks_machine.h"
#include "tests/support/random_spec.h"

namespace attn::testing {
namespace {

using sharding::testing::difference;
using sharding::testing::Expected;

ir::Attention read(const std::string& text) {
  const support::Source source("ranks.attn", text);
  diag::Sink sink(source);
  auto attention = driver::front_end(source, {}, sink);
  EXPECT_TRUE(attention.has_value()) << diag::to_text(sink);
  if (!attention) return {};
  sharding::testing::want_all(*attention);
  return *attention;
}

void expect_equal(const std::map<std::string, io::HostTensor>& made, const Expected& expected) {
  constexpr double kEqual = 2e-5;
  const reference::Outputs& outputs = expected.whole.outputs;
  const std::map<std::string, const io::HostTensor*> known = {
      {"o", &outputs.o},
      {"lse", &outputs.lse},
      {"max", &outputs.max},
      {"sum_exp", &outputs.sum_exp},
      {"max_with_sink", &outputs.max_with_sink},
      {"sum_exp_with_sink", &outputs.sum_exp_with_sink},
      {"lse_without_sink", &outputs.lse_without_sink}};
  for (const auto& [name, values] : made) {
    if (const auto found = known.find(name); found != known.end()) {
      EXPECT_LE(difference(values, *found->second), kEqual) << name;
      continue;
    }
    const std::string of = name.starts_with("d_") ? name.substr(2) : name.substr(1);
    EXPECT_LE(difference(values, expected.whole.of.find(of)->second), kEqual) << name;
  }
}

void compare_ranks(const ir::Attention& attention, const sharding::Sharding& sharding,
                   const sharding::WorkMap& map, const Expected& expected) {
  SCOPED_TRACE(sharding.to_text());
  const auto programs = sharding::rank_programs(sharding, map, attention);
  for (const bool other_strides : {false, true}) {
    const RanksOnHost ranks{attention, programs, expected, other_strides};
    expect_equal(run_on_host(ranks, plan::Direction::forward), expected);
    if (!programs.division.backward.empty())
      expect_equal(run_on_host(ranks, plan::Direction::backward), expected);
  }
}

void compare_all(const std::string& text, int ranks, std::size_t step) {
  SCOPED_TRACE(text);
  const ir::Attention attention = read(text);
  const auto expected = sharding::testing::expected(attention, 1);
  ASSERT_TRUE(expected.ok()) << expected.error().to_text();
  const sharding::WorkMap map = sharding::work_map(attention, ranks, nullptr);
  const std::vector<sharding::Sharding> all = sharding::shardings(attention, ranks, map);
  ASSERT_FALSE(all.empty());
  for (std::size_t i = 0; i < all.size(); i += step)
    compare_ranks(attention, all[i], map, *expected);
}

// One batch and whole heads, so that much is in place.
TEST(RanksOnHost, ComputeCausalMasks) {
  compare_all(
      "attention a { dims B = 1, Hq = 4, Hkv = 2, Sq = 48, Skv = 48, D = 8; "
      "mask q_idx >= kv_idx; }",
      4, 7);
}

TEST(RanksOnHost, ComputeWindows) {
  compare_all(
      "attention a { dims B = 1, Hq = 2, Sq = 64, Skv = 64, D = 8; "
      "mask q_idx >= kv_idx && q_idx - kv_idx < 9; }",
      4, 7);
}

TEST(RanksOnHost, ComputeLengthsASinkAndLearnedTensors) {
  compare_all(
      "attention a { dims B = 2, Hq = 4, Hkv = 2, Sq = 40, Skv = 40, Dqk = 6, Dv = 5; "
      "learn s: f32[Hq]; learn t: f32[Sq, Skv]; "
      "lengths q = [40, 23], kv = [17, 40]; "
      "score score + t[q_idx, kv_idx]; mask q_idx >= kv_idx; sink s[h]; }",
      4, 11);
}

TEST(RanksOnHost, ComputeGradientsThroughLse) {
  compare_all(
      "attention a { dims B = 2, Hq = 4, Hkv = 2, Sq = 40, Skv = 40, Dqk = 6, Dv = 5; "
      "learn s: f32[Hq]; lengths q = [40, 23], kv = [17, 40]; "
      "mask q_idx > kv_idx; sink s[h]; grad q, k, v, s, lse; }",
      4, 11);
  compare_all(
      "attention a { dims B = 1, Hq = 2, Sq = 24, Skv = 40, D = 4; mask abs(q_idx - kv_idx) < 5; "
      "grad q, k, v, lse; }",
      3, 5);
}

TEST(RanksOnHost, ComputeSigmoids) {
  compare_all(
      "attention a { dims B = 2, Hq = 2, Sq = 24, Skv = 40, D = 4; normalize sigmoid; "
      "mask abs(q_idx - kv_idx) < 12; }",
      3, 5);
}

TEST(RanksOnHost, ComputeFewRows) {
  compare_all("attention a { dims B = 1, Hq = 4, Hkv = 1, Sq = 3, Skv = 80, D = 8; }", 5, 3);
}

TEST(RanksOnHost, ComputeRandomMasks) {
  constexpr int kRanks[] = {2, 3, 4, 8};
  for (int seed = 0; seed < 12; ++seed) {
    const std::string text = random_spec(static_cast<std::uint64_t>(seed), 64);
    compare_all(text, kRanks[seed % 4], 37);
  }
}

}  // namespace
}  // namespace attn::testing
