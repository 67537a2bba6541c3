// The programs of all ranks give what the whole attention gives.
#include "compiler/sharding/simulator.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "compiler/driver/driver.h"
#include "tests/support/random_spec.h"
#include "tests/unit/compiler/sharding/equality.h"

namespace attn::sharding::simulator_tests {
namespace {

using ir::Dim;
using testing::compare;
using ::testing::ElementsAre;
using testing::expected;
using testing::Expected;

std::vector<std::string> specs() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(ATTN_SOURCE_DIR "/specs")) {
    if (entry.path().extension() == ".attn") names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

// Small values of the constants that specs have.
const std::map<std::string, std::string> kConstants = {
    {"window", "9"},    {"width", "8"},   {"height", "8"},   {"tile", "4"},
    {"kernel", "3"},    {"chunk", "11"},  {"block", "8"},    {"prefix", "10"},
    {"documents", "5"}, {"length", "16"}, {"sequences", "3"}};

// Sizes with the same relations as the spec's own.
sema::Bindings small(const ir::Attention& own, const std::string& text) {
  sema::Bindings bindings;
  for (const auto& [name, value] : kConstants) {
    const std::string header = text.substr(text.find("attention "));
    const std::string parameters = header.substr(0, header.find('{'));
    if (parameters.find(name + " =") != parameters.npos) bindings[name] = value;
  }
  const std::int64_t rows = own.dims[Dim::Sq], keys = own.dims[Dim::Skv];
  bindings["B"] = "2";
  bindings["Hq"] = own.dims[Dim::Hkv] == own.dims[Dim::Hq] ? "2" : "4";
  bindings["Hkv"] = own.dims[Dim::Hkv] == 1 ? "1" : "2";
  bindings["D"] = "4";
  if (own.dims[Dim::Dqk] != own.dims[Dim::Dv]) {
    bindings.erase("D");
    bindings["Dqk"] = "6", bindings["Dv"] = "4";
  }
  if (bindings.contains("width")) return bindings;
  bindings["Sq"] = rows == keys ? "40" : rows == 1 ? "1" : rows < keys ? "24" : "40";
  bindings["Skv"] = rows <= keys ? "40" : "24";
  return bindings;
}

ir::Attention read(const support::Source& source, const sema::Bindings& bindings) {
  diag::Sink sink(source);
  auto attention = driver::front_end(source, bindings, sink);
  EXPECT_TRUE(attention.has_value()) << diag::to_text(sink);
  if (!attention) return {};
  testing::want_all(*attention);
  return *attention;
}

// What is predicted to take least, and some of the others.
void compare_some(const ir::Attention& attention, int ranks, const Expected& expected,
                  std::size_t turn) {
  const WorkMap map = work_map(attention, ranks, nullptr);
  const auto best = choose(attention, ranks, estimating(attention, map, {}, {}));
  ASSERT_TRUE(best.ok()) << best.error().to_text();
  compare(attention, best->sharding, map, expected);
  const std::vector<Sharding> all = shardings(attention, ranks, map);
  Sharding other = all[turn * 7 % all.size()];
  if (turn % 2 == 0) other.most_seen = 5;  // its parts are cut
  compare(attention, other, map, expected);
}

// How the message begins that refuses an attention, or null.
const char* refusal_of(const ir::Attention& attention) {
  return attention.quantize            ? "8-bit attention is not sharded: each part would round"
         : attention.gather            ? "gathered keys are not divided"
         : attention.values_of_keys    ? "values that are a part of k are not divided"
         : attention.cache             ? "keys and values of 8 bits are not divided"
         : !attention.branches.empty() ? "several attentions in one spec are not sharded"
         : !attention.sums.empty()     ? "sums along keys are not divided"
         : attention.prologue_q        ? "prologues are not divided"
         : attention.epilogue          ? "an attention with an epilogue is not sharded"
                                       : nullptr;
}

void expect_refusal(const ir::Attention& attention, int ranks, const char* begin) {
  const Status status = check_shardable(attention, ranks);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_THAT(status.error().message, ::testing::StartsWith(begin));
}

class Ranks : public ::testing::TestWithParam<int> {};

TEST_P(Ranks, ComputeEverySpec) {
  std::size_t turn = static_cast<std::size_t>(GetParam());
  for (const std::string& name : specs()) {
    SCOPED_TRACE(name);
    const auto source = support::Source::read(ATTN_SOURCE_DIR "/specs/" + name + ".attn");
    ASSERT_TRUE(source.ok());
    const ir::Attention own = read(*source, {});
    if (const char* refusal = refusal_of(own)) {
      expect_refusal(own, GetParam(), refusal);
      continue;
    }
    const ir::Attention attention = read(*source, small(own, std::string(source->text())));
    const auto whole = expected(attention, ++turn);
    ASSERT_TRUE(whole.ok()) << whole.error().to_text();
    compare_some(attention, GetParam(), *whole, turn);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Ranks, ::testing::Values(2, 3, 4, 8));

// ATTN_RANDOM_MASKS: how many.
TEST(Simulator, ComputesRandomMasks) {
  const char* wanted = std::getenv("ATTN_RANDOM_MASKS");
  const int count = wanted ? std::atoi(wanted) : 30;
  constexpr int kRanks[] = {2, 3, 4, 8, 5, 6};
  for (int seed = 0; seed < count; ++seed) {
    const std::string text = attn::testing::random_spec(static_cast<std::uint64_t>(seed), 64);
    SCOPED_TRACE(text);
    const support::Source source("random.attn", text);
    const ir::Attention attention = read(source, {});
    const auto whole = expected(attention, static_cast<std::uint64_t>(seed));
    ASSERT_TRUE(whole.ok()) << whole.error().to_text();
    // More ranks than rows and keys are refused.
    const std::int64_t most = std::max(attention.dims[Dim::Sq], attention.dims[Dim::Skv]);
    const auto ranks = static_cast<int>(std::min<std::int64_t>(kRanks[seed % 6], most));
    compare_some(attention, ranks, *whole, static_cast<std::size_t>(seed));
  }
}

// Every other row and key: numbers that are read from tensors.
Sharding alternating(const WorkMap& map) {
  Sharding sharding{4, 1, false, 1, contiguous(map.rows, 4), contiguous(map.keys, 4)};
  for (Dealing* dealing : {&sharding.rows, &sharding.keys}) {
    for (std::size_t block = 0; block < dealing->owners.size(); ++block)
      dealing->owners[block] = static_cast<int>(block) % 4;
  }
  return sharding;
}

// Compares every sharding among 4 ranks; returns them.
std::vector<Sharding> compare_all(const std::string& text) {
  const support::Source source("one.attn", text);
  const ir::Attention attention = read(source, {});
  const auto whole = expected(attention, 1);
  EXPECT_TRUE(whole.ok()) << whole.error().to_text();
  const WorkMap map = work_map(attention, 4, nullptr);
  std::vector<Sharding> all = shardings(attention, 4, map);
  for (Sharding sharding : all) {
    if (sharding.own_last && sharding.arrivals > 1) continue;  // as with one arrival
    compare(attention, sharding, map, *whole);
    sharding.most_seen = 6;
    if (sharding.arrivals == 1 && sharding.groups == 1) compare(attention, sharding, map, *whole);
  }
  if (attention.dims[Dim::Sq] > 1) compare(attention, alternating(map), map, *whole);
  return all;
}

// Every way to shard one attention with everything that needs care.
TEST(Simulator, ComputesEverySharding) {
  const std::vector<Sharding> all = compare_all(R"(
    attention all {
      dims B = 2, Hq = 8, Hkv = 4, Sq = 40, Skv = 40, D = 4;
      learn sinks: f32[Hq];
      learn bias: f32[Hq, 79];
      lengths q = 28 + 9 * i0, kv = 40 - 5 * i0;
      score score + bias[h, q_idx - kv_idx + 39];
      mask q_idx >= kv_idx || kv_idx < 5;
      sink sinks[h];
      dropout 0.25;
      outputs o, lse;
    })");
  EXPECT_GE(all.size(), 30U);
}

// Keys and values of more than the cache holds, and as many rows: squares, of which those on the
// diagonal are equal, and the others too.
TEST(Parts, AreCutWhereTheySeeTooMuch) {
  const support::Source source("causal.attn", R"(
    attention causal { dims B = 1, Hq = 2, Sq = 64, D = 4; mask q_idx >= kv_idx; })");
  const ir::Attention attention = read(source, {});
  const WorkMap map = work_map(attention, 2, nullptr);
  Sharding sharding{2, 1, false, 0, contiguous(map.rows, 2), contiguous(map.keys, 2)};
  using Shape = std::pair<Intervals, Intervals>;
  const auto shapes = [&](int team) {
    std::vector<Shape> all;
    for (const Part& part : parts_of(sharding, team, map, false))
      all.emplace_back(part.rows, part.keys);
    return all;
  };
  const Interval first{0, 16}, second{16, 32}, third{32, 48}, fourth{48, 64};
  const auto shape = [](Interval rows, Interval keys) { return Shape{{rows}, {keys}}; };
  EXPECT_THAT(shapes(1), ElementsAre(shape({32, 64}, {0, 64})));
  sharding.most_seen = 16;
  EXPECT_THAT(shapes(0),
              ElementsAre(shape(first, first), shape(second, first), shape(second, second)));
  EXPECT_THAT(shapes(1), ElementsAre(shape(third, first), shape(third, second), shape(third, third),
                                     shape(fourth, first), shape(fourth, second),
                                     shape(fourth, third), shape(fourth, fourth)));
  sharding.most_seen = 64;
  EXPECT_THAT(shapes(1), ElementsAre(shape({32, 64}, {0, 64})));
}

// About a quarter of the work with own keys is left for the end: a run of rows where there is one,
// else the first rows of one.
TEST(Parts, MeetTheOwnKeysLast) {
  using Shape = std::tuple<int, Intervals, Intervals>;
  const auto shapes = [&](const std::string& mask, bool folds, int team) {
    const support::Source source(
        "one.attn", "attention one { dims B = 1, Hq = 1, Sq = 64, D = 4; mask " + mask + "; }");
    const ir::Attention attention = read(source, {});
    const WorkMap map = work_map(attention, 2, nullptr);
    Dealing rows = contiguous(map.rows, 2);
    for (std::size_t block = 0; folds && block < rows.owners.size(); ++block)
      rows.owners[block] = block * 4 / rows.owners.size() % 3 == 0 ? 0 : 1;
    Sharding sharding{2, 1, false, 1, rows, rows};
    sharding.own_last = true;
    EXPECT_EQ(sharding.stages(), 3);
    std::vector<Shape> all;
    for (const Part& part : parts_of(sharding, team, map, false))
      all.emplace_back(part.stage, part.rows, part.keys);
    return all;
  };
  const auto shape = [](int stage, Interval rows, Intervals keys) {
    return Shape{stage, {rows}, std::move(keys)};
  };
  // Rows 0..16 and 48..64: a sixth of the work, and the others.
  EXPECT_THAT(shapes("q_idx >= kv_idx", true, 0),
              ElementsAre(shape(0, {48, 64}, {{0, 16}, {48, 64}}), shape(1, {48, 64}, {{16, 48}}),
                          shape(2, {0, 16}, {{0, 16}})));
  // A triangle: the first half of its rows have a quarter of it.
  EXPECT_THAT(shapes("q_idx >= kv_idx", false, 0),
              ElementsAre(shape(0, {16, 32}, {{0, 32}}), shape(2, {0, 16}, {{0, 16}})));
  EXPECT_THAT(shapes("q_idx >= 0", false, 1),
              ElementsAre(shape(0, {40, 64}, {{32, 64}}), shape(1, {32, 64}, {{0, 32}}),
                          shape(2, {32, 40}, {{32, 64}})));
}

// Rows that see no other keys begin; others wait for theirs, and meet all that they see at once.
TEST(Parts, OfRowsThatWaitHaveAllTheirKeys) {
  using Shape = std::tuple<int, bool, Intervals, Intervals>;
  const support::Source source("window.attn", R"(
    attention window {
      dims B = 1, Hq = 1, Sq = 64, D = 4;
      learn sinks: f32[1];
      mask q_idx - kv_idx >= 0 && q_idx - kv_idx < 5;
      sink sinks[h];
    })");
  const ir::Attention attention = read(source, {});
  const WorkMap map = work_map(attention, 2, nullptr);
  Sharding sharding{2, 1, false, 1, contiguous(map.rows, 2), contiguous(map.keys, 2)};
  sharding.rows_wait = true;
  EXPECT_EQ(sharding.stages(), 2);
  const auto shapes = [&](int team) {
    std::vector<Shape> all;
    for (const Part& part : parts_of(sharding, team, map, true))
      all.emplace_back(part.stage, part.sink, part.rows, part.keys);
    return all;
  };
  EXPECT_THAT(shapes(0), ElementsAre(Shape{0, true, {{0, 32}}, {{0, 32}}}));
  EXPECT_THAT(shapes(1), ElementsAre(Shape{0, true, {{36, 64}}, {{32, 64}}},
                                     Shape{1, true, {{32, 36}}, {{28, 36}}}));
}

// A few rows see everything: they go to their keys, while other rows stay.
TEST(Simulator, SendsRowsThatSeeMuchMore) {
  const std::vector<Sharding> all = compare_all(R"(
    attention global {
      dims B = 2, Hq = 2, Hkv = 2, Sq = 64, Skv = 64, D = 4;
      learn sinks: f32[Hq];
      lengths q = 60 - 30 * i0;
      mask abs(q_idx - kv_idx) < 3 || q_idx == 0 || q_idx == 40;
      sink sinks[h];
      outputs o, lse;
    })");
  EXPECT_TRUE(std::ranges::any_of(all, [](const Sharding& sharding) {
    return std::ranges::count(sharding.travels, true) == 2;
  }));
  EXPECT_TRUE(std::ranges::any_of(all, &Sharding::rows_wait));
}

// Rows go to their keys: a single row, of which each rank has some keys.
TEST(Simulator, MergesPartsOfOneRow) {
  const std::vector<Sharding> all = compare_all(R"(
    attention one {
      dims B = 1, Hq = 2, Hkv = 1, Sq = 1, Skv = 64, D = 4;
      learn sinks: f32[Hq];
      sink sinks[h];
      outputs o, lse;
    })");
  EXPECT_FALSE(all.empty());
  for (const Sharding& sharding : all) EXPECT_TRUE(sharding.rows_travel);
}

// Integers have 32 bits, those of parts too.
TEST(Simulator, ComputesIntegersThatWrapAround) {
  for (const std::string mask :
       {"q_idx + 2147483600 >= kv_idx + 100", "q_idx + 2147483620 >= kv_idx + 2147483640",
        "q_idx + 2147483600 - (kv_idx + 10) >= 0", "q_idx - 2147483640 - kv_idx < 0"}) {
    SCOPED_TRACE(mask);
    compare_all("attention wraps { dims B = 1, Hq = 1, Sq = 64, D = 2; outputs o, lse; mask " +
                mask + "; }");
  }
}

// A part whose sum is 0 has no weights: none may be lost.
TEST(Simulator, DividesKeysWhereWeightsVanishWithTheirSums) {
  const std::string begin =
      "attention w { dims B = 1, Hq = 1, Sq = 16, D = 4; shard sequence; outputs o, lse; weight ";
  for (const char* weight :
       {"relu(exp(score) - 1) / sum(abs(exp(score) - 1))", "exp(score) / sum(exp(score) + 1)",
        "score / sum(abs(score))", "relu(score) / sum(abs(score) + 1)",
        "score * score / sum(score ** 2)"}) {
    SCOPED_TRACE(weight);
    const support::Source source("w.attn", begin + weight + "; }");
    const Status status = check_shardable(read(source, {}), 2);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  for (const char* weight :
       {"score / sum(relu(score - 1.5))", "exp(score) / sum(relu(exp(score) - 1))",
        "relu(exp(score) - 1) / sum(abs(exp(score) - 2))", "score ** 2 / sum(relu(score))"}) {
    SCOPED_TRACE(weight);
    const support::Source source("w.attn", begin + weight + "; }");
    const Status status = check_shardable(read(source, {}), 2);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::unsupported);
    EXPECT_THAT(status.error().message, ::testing::StartsWith("keys of this `weight`"));
  }
}

TEST(Simulator, DividesHeadsOfEveryWeight) {
  const support::Source source("w.attn",
                               "attention w { dims B = 1, Hq = 4, Sq = 16, D = 4;"
                               "outputs o, lse; weight score / sum(relu(score - 1.5)); }");
  const ir::Attention attention = read(source, {});
  const std::vector<Sharding> all = shardings(attention, 4, work_map(attention, 4, nullptr));
  ASSERT_FALSE(all.empty());
  for (const Sharding& sharding : all) EXPECT_EQ(sharding.teams(), 1);
  EXPECT_TRUE(check_shardable(attention, 4).ok());
}

TEST(Simulator, ComputesRowsWithoutKeys) {
  const std::vector<Sharding> all = compare_all(
      "attention none { dims B = 1, Hq = 2, Sq = 16, Skv = 0, D = 4; outputs o, lse; }");
  EXPECT_FALSE(all.empty());
  const support::Source source("sink.attn", R"(
    attention none {
      dims B = 1, Hq = 2, Sq = 16, Skv = 0, D = 4; tensor s: f32[Hq]; sink s[h]; })");
  const Status status = check_shardable(read(source, {}), 1);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, ::testing::StartsWith("a sink without keys"));
}

}  // namespace
}  // namespace attn::sharding::simulator_tests
