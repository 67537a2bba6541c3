#include "compiler/reference/philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

namespace attn::reference {
namespace {

using ::testing::ElementsAre;
using Words = std::array<std::uint32_t, 4>;

constexpr std::uint32_t kOnes = 0xffffffff;

// The known answers of the paper's library (Random123, kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_THAT(philox({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(philox({0, 0, 0, 0}, {0, 0}, 7),
              ElementsAre(0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48));
}

TEST(Random, NumbersAreHalvesOfTheWordsOfTheirGroupsOfKeys) {
  const Random random(0x0000000300000005, 0x0000000700000009);
  const Words key = philox({9, 7, 0, 0}, {5, 3});
  const Words words = philox({2 * 4 + 3, 11, 12, 13}, {key[0], key[1]});
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::uint32_t kv = 2 * 32 + 8 * i + 6;
    EXPECT_EQ(random.number({.b = 13, .h = 12, .q = 11, .kv = kv}), words[i] & 0x7fff);
    EXPECT_EQ(random.number({.b = 13, .h = 12, .q = 11, .kv = kv + 1}), words[i] >> 16 & 0x7fff);
  }
}

TEST(Random, NoNumberIsUsedTwice) {
  const Random random(1, 2);
  std::set<std::int64_t> groups;  // 4 numbers that follow each other, as one
  constexpr std::uint32_t kKeys = 1 << 14;
  for (std::uint32_t kv = 0; kv < kKeys; kv += 4) {
    std::int64_t group = 0;
    for (std::uint32_t i = 0; i < 4; ++i) group = group << 15 | random.number({0, 0, 0, kv + i});
    groups.insert(group);
  }
  EXPECT_EQ(groups.size(), kKeys / 4);
}

constexpr std::uint32_t kRows = 128, kKeys = 256;
constexpr double kWeights = kRows * kKeys;

// The kept share, and how often the weights of the two functions agree, of kRows x kKeys.
using Kept = std::function<bool(std::uint32_t q, std::uint32_t kv)>;
double share(const Kept& kept) {
  int count = 0;
  for (std::uint32_t q = 0; q < kRows; ++q) {
    for (std::uint32_t kv = 0; kv < kKeys; ++kv) count += kept(q, kv);
  }
  return count / kWeights;
}

Kept kept_by(std::uint64_t seed, std::uint64_t offset, double p, std::uint32_t b = 0,
             std::uint32_t h = 0, std::uint32_t q_moved = 0, std::uint32_t kv_moved = 0) {
  ir::Dropout dropout;
  dropout.probability = p;
  return [=, random = Random(seed, offset)](std::uint32_t q, std::uint32_t kv) {
    return random.keeps({b, h, q + q_moved, kv + kv_moved}, dropout);
  };
}

TEST(Random, KeepsTheWantedShare) {
  for (const double p : {0.0, 1e-3, 0.1, 0.25, 0.5, 0.9, 0.97, 0.999, 0.99999}) {
    ir::Dropout dropout;
    dropout.probability = p;
    const double exact = dropout.exact_probability();
    EXPECT_NEAR(exact, p, 1.0 / 0x8000);
    EXPECT_NEAR(share(kept_by(3, 4, p)), 1 - exact, 5 * std::sqrt(exact * (1 - exact) / kWeights))
        << p;
  }
}

TEST(Random, WeightsAreIndependent) {
  const double p = 0.3;
  const Kept base = kept_by(3, 4, p);
  const auto expect_unrelated = [&](const std::string& what, const Kept& other) {
    const double both =
        share([&](std::uint32_t q, std::uint32_t kv) { return base(q, kv) && other(q, kv); });
    const double expected = (1 - p) * (1 - p);
    // Neighbours share weights: less is independent than is counted.
    EXPECT_NEAR(both, expected, 6 * std::sqrt(expected * (1 - expected) / kWeights)) << what;
  };
  expect_unrelated("seed", kept_by(4, 4, p));
  expect_unrelated("seed and offset exchanged", kept_by(4, 3, p));
  expect_unrelated("upper half of the seed", kept_by(3 + (1ULL << 40), 4, p));
  for (const std::uint64_t step : {1ULL, 2ULL, 4ULL, 1ULL << 40}) {
    expect_unrelated("offset " + std::to_string(step), kept_by(3, 4 + step, p));
  }
  expect_unrelated("batch", kept_by(3, 4, p, 1, 0));
  expect_unrelated("head", kept_by(3, 4, p, 0, 1));
  expect_unrelated("head 4", kept_by(3, 4, p, 0, 4));
  for (const std::uint32_t step : {1, 2, 3, 4, 7, 8, 16, 24, 32, 64}) {
    expect_unrelated("row " + std::to_string(step), kept_by(3, 4, p, 0, 0, step, 0));
    expect_unrelated("column " + std::to_string(step), kept_by(3, 4, p, 0, 0, 0, step));
    expect_unrelated("both " + std::to_string(step), kept_by(3, 4, p, 0, 0, step, step));
  }
}

}  // namespace
}  // namespace attn::reference
