#include "compiler/sharding/dealing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace attn::sharding {
namespace {

using ::testing::ElementsAre;

std::vector<double> loads(const Dealing& dealing, const std::vector<double>& weights) {
  std::vector<double> loads(static_cast<std::size_t>(dealing.ranks));
  for (std::size_t block = 0; block < weights.size(); ++block)
    loads[static_cast<std::size_t>(dealing.owners[block])] += weights[block];
  return loads;
}

double most(const Dealing& dealing, const std::vector<double>& weights) {
  const double mean = std::accumulate(weights.begin(), weights.end(), 0.0) / dealing.ranks;
  const std::vector<double> all = loads(dealing, weights);
  return *std::ranges::max_element(all) / mean;
}

const Dealing* named(const std::vector<Dealing>& all, std::string_view name) {
  for (const Dealing& dealing : all) {
    if (dealing.name == name) return &dealing;
  }
  return nullptr;
}

// The zigzag of causal masks: each rank has an early and a late chunk.
TEST(Dealing, FoldsForthAndBack) {
  const auto all = dealings({64, 8}, {1, 2, 3, 4, 5, 6, 7, 8}, 4);
  EXPECT_THAT(named(all, "folded")->owners, ElementsAre(0, 1, 2, 3, 3, 2, 1, 0));
  EXPECT_EQ(named(all, "folded")->of(1), (Intervals{{8, 16}, {48, 56}}));
  EXPECT_THAT(named(all, "contiguous")->owners, ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
}

TEST(Dealing, GivesCausalRowsEqualWork) {
  std::vector<double> weights(64);
  std::iota(weights.begin(), weights.end(), 1);
  const auto all = dealings({64, 1}, weights, 8);
  EXPECT_GT(most(*named(all, "contiguous"), weights), 1.8);
  for (const char* name : {"folded", "balanced", "swapped"})
    EXPECT_LE(most(*named(all, name), weights), 1.02) << name;
}

// Every way gives each rank the same number of chunks, which differ by a block at most.
TEST(Dealing, GivesEachRankAsMuch) {
  std::mt19937 random(3);
  for (const int ranks : {2, 3, 5, 8}) {
    for (const std::int64_t blocks : {40, 64, 97}) {
      std::vector<double> weights;
      for (std::int64_t i = 0; i < blocks; ++i)
        weights.push_back(static_cast<double>(random() % 100));
      for (const Dealing& dealing : dealings({blocks, 1}, weights, ranks)) {
        std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks));
        for (const int owner : dealing.owners) ++counts[static_cast<std::size_t>(owner)];
        const auto [least, largest] = std::ranges::minmax_element(counts);
        EXPECT_LE(*largest - *least, std::min<std::int64_t>(16, blocks / ranks)) << dealing.name;
        EXPECT_GT(*least, 0) << dealing.name;
      }
    }
  }
}

// A few heavy documents among light ones: contiguous rows are uneven, exchanged ones are not.
TEST(Dealing, ExchangesChunksUntilWorkIsEven) {
  std::vector<double> weights(64, 1);
  for (std::size_t i = 0; i < 16; ++i) weights[i] = 10;
  const auto all = dealings({64, 1}, weights, 4);
  EXPECT_GT(most(*named(all, "contiguous"), weights), 3);
  double best = 4;
  for (const Dealing& dealing : all) {
    if (dealing.name == "swapped") best = std::min(best, most(dealing, weights));
  }
  EXPECT_LE(best, 1.01);
}

TEST(Dealing, IsDividedAmongATeam) {
  const Dealing dealing = divided(contiguous({8, 1}, 2), 2);
  EXPECT_EQ(dealing.ranks, 4);
  EXPECT_THAT(dealing.owners, ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
}

}  // namespace
}  // namespace attn::sharding
