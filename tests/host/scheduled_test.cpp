// Kernels whose work a schedule divides, on the emulated GPU: executes that make it, and others
// that use one that was made for both.
#include "tests/host/scheduled.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

namespace attn::host::scheduled_tests {
namespace {

using ::testing::HasSubstr;

class HostSchedules : public ::testing::TestWithParam<gpu::Order> {};

constexpr const char* kDecode =
    "attention decode { dims B = 3, Hq = 2, Hkv = 1, Sq = 1, Skv = 24000, D = 16; dtype bf16; "
    "lengths kv; outputs o, lse; }";

// One unit of heads, so that two blocks of threads have more than a long share of two sequences,
// and less of one.
TEST_P(HostSchedules, OfLongPartsInTurnsAndOnALine) {
  const Scheduled decode(kDecode, 2, GetParam());
  EXPECT_THAT(decode.step().source, HasSubstr("kLongShare = 120;"));
  const Header turns = decode.expect_reference({{}, {24000, 700, 23000}});
  EXPECT_EQ(turns.first, turns.workers);
  EXPECT_GT(turns.end, 6) << "parts of three tiles";
  const Header line = decode.expect_reference({{}, {5, 0, 24000}});
  EXPECT_GT(line.first, line.workers);
  EXPECT_EQ(line.flags, 0);
}

TEST_P(HostSchedules, OfNoKeysAndOfEqualSequences) {
  const Scheduled decode(kDecode, 2, GetParam());
  decode.expect_reference({{}, {0, 0, 0}});
  decode.expect_reference({{}, {900, 900, 900}});
}

TEST_P(HostSchedules, WithOptions) {
  const Scheduled decode(kDecode, 4, GetParam());
  const Lengths lengths{{}, {9000, 700, 5000}};
  const Header whole = decode.expect_reference(lengths, {.most_parts = 1});
  EXPECT_EQ(whole.end, 3);
  const Header of_two = decode.expect_reference(lengths, {.most_parts = 2, .blocks = 3});
  EXPECT_EQ(of_two.workers, 3);
  const Header split = decode.expect_reference(lengths, {.split_keys = 1100});
  EXPECT_EQ(split.end, 9 + 1 + 5) << "parts of 1024 keys";
  const Header many = decode.expect_reference({{}, {6000, 0, 100}}, {.split_keys = 128});
  EXPECT_EQ(many.flags, plan::kScheduleTooManyParts);
  EXPECT_EQ(many.end, 3);
}

// A sequence with parts of so many keys has the same bits beside any others.
TEST_P(HostSchedules, OfPartsOfEqualLengthAreInvariant) {
  const Scheduled decode(kDecode, 4, GetParam());
  const Options options{.split_keys = 2048};
  const tools::Outputs first = decode.outputs({{}, {9000, 7000, 5000}}, options);
  const tools::Outputs second = decode.outputs({{}, {9000, 0, 12000}}, options);
  for (const auto& [name, tensor] : first) {
    const std::vector<double>& other = second.at(name).values;
    const std::size_t of_batch = other.size() / 3;
    EXPECT_TRUE(std::equal(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(of_batch),
                           tensor.values.begin()))
        << name;
  }
}

// Rows of sequences from the number on are left as they are.
TEST_P(HostSchedules, OfFewerSequences) {
  const Scheduled decode(kDecode, 4, GetParam());
  const Lengths lengths{{}, {900, 5000, 700}};
  const tools::Outputs all = decode.outputs(lengths, {});
  const int count = 2;
  for (const Options& options : {Options{.sequences_at = &count}, Options{.sequences = count + 1},
                                 Options{.sequences = 1}}) {
    const tools::Outputs some = decode.outputs(lengths, options);
    const std::size_t used = options.sequences == 1 ? 0 : count;
    for (const auto& [name, tensor] : some) {
      const std::size_t end = tensor.values.size() / 3 * used;
      for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        const double value = tensor.values[i];
        ASSERT_TRUE(i < end ? std::abs(value - all.at(name).values[i]) < 1e-2 : std::isnan(value))
            << name << i;
      }
    }
  }
}

// Tiles without rows are stored, too.
TEST_P(HostSchedules, OfRowsPastTheEnd) {
  const Scheduled padded(
      "attention padded { dims B = 4, Hq = 2, Hkv = 2, Sq = 150, Skv = 400, D = 32; dtype f16; "
      "layout bshd; align bottom_right; lengths q, kv; mask 0 <= q_idx - kv_idx < 130; "
      "outputs o, lse, max, sum_exp; }",
      3, GetParam());
  padded.expect_reference({{150, 1, 0, 70}, {400, 333, 90, 60}});
  padded.expect_reference({{0, 0, 0, 129}, {400, 0, 1, 400}}, {.split_keys = 128, .blocks = 2});
}

// Warp groups pass tiles of which they have no rows, before and after others.
TEST_P(HostSchedules, OfTwoWarpGroups) {
  const Scheduled packed(
      "attention packed { dims B = 5, Hq = 4, Hkv = 2, Sq = 64, Skv = 500, D = 64; dtype f16; "
      "layout thd; lengths q, kv; mask q_idx >= kv_idx; outputs o, lse; }",
      3, GetParam());
  EXPECT_THAT(packed.step().source, HasSubstr("kGroups = 2;"));
  const double all = 64;
  for (const Lengths& lengths : {Lengths{{1, 1, 1, 1, 1}, {500, 0, 3, 499, 130}},
                                 Lengths{{1, all, 1, all, 64}, {9, 500, 77, 300, 64}},
                                 Lengths{{all, 32, 33, 0, 2}, {400, 32, 33, 500, 1}},
                                 Lengths{{0, 1, all, 0, all / 2}, {7, 200, all, 0, 500}},
                                 Lengths{{0, 0, 0, 0, 0}, {500, 500, 0, 1, 2}}}) {
    packed.expect_reference(lengths);
    packed.expect_reference(lengths, {.split_keys = 256, .blocks = 1});
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, HostSchedules,
                         ::testing::Values(gpu::Order::early_copies, gpu::Order::late_copies));

}  // namespace
}  // namespace attn::host::scheduled_tests
