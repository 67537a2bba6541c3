// Keys that all sequences of a schedule begin with, which are read once, on the emulated GPU
// (attn/forward_prefix.cuh).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/host/scheduled.h"

namespace attn::host::scheduled_tests {
namespace {

using ::testing::HasSubstr;

class HostPrefixes : public ::testing::TestWithParam<gpu::Order> {};

std::string spec_of(const std::string& sizes, const std::string& clauses) {
  return "attention shared { dims " + sizes +
         "; dtype bf16; layout q: thd, o: thd, k: paged(page = 16), v: paged(page = 16); "
         "align bottom_right; lengths q, kv; " +
         clauses + " }";
}

// Rows of 20 sequences are those of two tiles of four heads each.
TEST_P(HostPrefixes, OfDecodes) {
  const Scheduled decode(spec_of("B = 20, Hq = 8, Hkv = 2, Sq = 1, Skv = 700, D = 32",
                                 "outputs o, lse, max, sum_exp;"),
                         6, GetParam());
  ASSERT_THAT(decode.step().source, HasSubstr("kPrefix = true;"));
  ASSERT_THAT(decode.step().source, HasSubstr("kPack = 4;"));
  const auto block = static_cast<int>(decode.step().schedule->tile_keys);
  Lengths lengths;
  for (int b = 0; b < 20; ++b) {
    lengths.q.push_back(b % 7 == 3 ? 0 : 1);
    lengths.kv.push_back(b % 7 == 3 ? 0 : 2 * block + b * 9);
  }
  for (const int shared : {0, 16, block, 2 * block - 16, 2 * block}) {
    SCOPED_TRACE(shared);
    decode.expect_shared(lengths, shared, true, {.shared_keys = shared});
  }
  lengths.kv[19] = block + 7;  // shorter than what is said to be shared
  decode.expect_shared(lengths, 2 * block, false, {.shared_keys = 2 * block});
  decode.expect_shared(lengths, block, true, {.shared_keys = block});
  lengths.kv[0] = 0, lengths.q[0] = 0;  // the first one, where they would be read
  decode.expect_shared(lengths, block, false, {.shared_keys = block});
}

// Parts of the prefix, and of what sequences have behind it.
TEST_P(HostPrefixes, InParts) {
  const Scheduled decode(spec_of("B = 9, Hq = 4, Hkv = 1, Sq = 1, Skv = 9000, D = 16",
                                 "score 5.0 * tanh(score / 5.0); outputs o, lse;"),
                         5, GetParam());
  const Lengths lengths{{1, 1, 1, 1, 1, 1, 1, 1, 1},
                        {4200, 4097, 4100, 8900, 4300, 4096, 5000, 4600, 4111}};
  const Header free = decode.expect_shared(lengths, 4096, true, {.shared_keys = 4096});
  EXPECT_GT(free.prefix, 2) << "several parts";
  EXPECT_GT(free.end, free.prefix / 2 + 9) << "and of a sequence";
  const Header two = decode.expect_shared(lengths, 4096, true,
                                          {.most_parts = 2, .blocks = 4, .shared_keys = 4096});
  EXPECT_EQ(two.prefix, 2 * 2);
  const Header whole =
      decode.expect_shared(lengths, 4096, true, {.most_parts = 1, .shared_keys = 4096});
  EXPECT_EQ(whole.prefix, 2);
  EXPECT_EQ(whole.end, 1 + 9);
  const int beside[] = {8, 4096};
  const Header some = decode.header_of(
      lengths, {.sequences_at = beside, .shared_keys = plan::kScheduleSharedBeside});
  EXPECT_EQ(some.sequences, 8);
  EXPECT_GT(some.prefix, 0);
}

// Rows of a sequence are in several tiles of the prefix, and these in several sequences. Sinks are
// counted once.
TEST_P(HostPrefixes, OfSeveralRows) {
  const Scheduled drafts(spec_of("B = 7, Hq = 4, Hkv = 2, Sq = 20, Skv = 600, D = 64",
                                 "tensor sinks: f32[Hq]; mask q_idx >= kv_idx; sink sinks[h]; "
                                 "outputs o, lse, lse_without_sink;"),
                         4, GetParam());
  ASSERT_THAT(drafts.step().source, HasSubstr("kPrefix = true;"));
  const Lengths lengths{{20, 3, 0, 17, 1, 9, 20}, {300, 259, 0, 600, 257, 400, 275}};
  drafts.expect_shared(lengths, 256, true, {.shared_keys = 256});
  // The first row of the last one does not see the last shared key.
  const Lengths less{{20, 3, 0, 17, 1, 9, 20}, {300, 259, 0, 600, 257, 400, 274}};
  drafts.expect_shared(less, 256, false, {.shared_keys = 256});
}

TEST_P(HostPrefixes, OfTwoWarpGroups) {
  for (const char* heads : {"Hq = 4, Hkv = 2, Sq = 64", "Hq = 5, Hkv = 1, Sq = 100"}) {
    SCOPED_TRACE(heads);
    const Scheduled packed(spec_of("B = 5, " + std::string(heads) + ", Skv = 700, D = 64",
                                   "mask q_idx >= kv_idx; outputs o, lse;"),
                           6, GetParam());
    ASSERT_THAT(packed.step().source, HasSubstr("kGroups = 2;"));
    ASSERT_THAT(packed.step().source, HasSubstr("kPrefix = true;"));
    packed.expect_shared({{1, 64, 0, 30, 64}, {300, 320, 0, 700, 500}}, 256, true,
                         {.shared_keys = 256});
    packed.expect_shared({{64, 64, 64, 64, 64}, {320, 320, 320, 320, 320}}, 256, true,
                         {.blocks = 2, .shared_keys = 256});
  }
}

// Two warp groups have columns of o, of which one computes scores.
TEST_P(HostPrefixes, OfWideOutputs) {
  const Scheduled wide(spec_of("B = 6, Hq = 8, Hkv = 1, Sq = 2, Skv = 400, Dqk = 64, Dv = 320",
                               "mask q_idx >= kv_idx; outputs o, lse;"),
                       4, GetParam());
  ASSERT_THAT(wide.step().source, HasSubstr("kShares = 2;"));
  ASSERT_THAT(wide.step().source, HasSubstr("kPrefix = true;"));
  const Lengths lengths{{2, 1, 2, 0, 1, 2}, {300, 194, 195, 0, 260, 400}};
  wide.expect_shared(lengths, 192, true, {.shared_keys = 192});
  wide.expect_shared(lengths, 192, true, {.most_parts = 1, .shared_keys = 192});
}

// A window that hides nothing of short sequences, and some of long ones.
TEST_P(HostPrefixes, OfAWindow) {
  const Scheduled window(spec_of("B = 3, Hq = 4, Hkv = 1, Sq = 1, Skv = 900, D = 32",
                                 "mask q_idx - kv_idx < 500; outputs o, lse;"),
                         3, GetParam());
  ASSERT_THAT(window.step().source, HasSubstr("kPrefix = true;"));
  window.expect_shared({{1, 1, 1}, {300, 260, 500}}, 256, true, {.shared_keys = 256});
  window.expect_shared({{1, 1, 1}, {300, 260, 501}}, 256, false, {.shared_keys = 256});
}

TEST_P(HostPrefixes, AreRefusedWithTheReason) {
  const auto why = [&](const std::string& text) {
    target::Context context;
    context.direction = plan::Direction::forward;
    const plan::Program program = driver::lower(attention_of(text), "native", context).value();
    const plan::Schedule& schedule = *plan::scheduled_step(program)->schedule;
    EXPECT_EQ(schedule.shares_keys, schedule.unshared.empty());
    return schedule.unshared;
  };
  const std::string sizes = "B = 3, Hq = 4, Hkv = 1, Sq = 2, Skv = 900, D = 32";
  EXPECT_EQ(why(spec_of(sizes, "outputs o;")), "");
  EXPECT_EQ(why(spec_of(sizes, "score score - (q_idx - kv_idx); outputs o;")),
            "scores depend on the row or on the sequence");
  EXPECT_EQ(why(spec_of(sizes, "normalize sigmoid; outputs o;")),
            "weights are not those of softmax");
  EXPECT_EQ(why(spec_of(sizes, "weight relu(score); outputs o;")),
            "weights are not those of softmax");
  EXPECT_EQ(why(spec_of(sizes, "dropout 0.1; outputs o;")), "there is dropout");
  EXPECT_EQ(why("attention a { dims " + sizes + "; dtype bf16; lengths q, kv; }"),
            "rows of q and o are not packed (layout thd)");
  EXPECT_EQ(why("attention a { dims " + sizes + "; dtype bf16; layout thd; lengths q, kv; }"),
            "keys and values are not in pages");
  EXPECT_EQ(why("attention a { dims " + sizes +
                "; dtype bf16; layout q: thd, o: thd, k: paged(page = 1), v: paged(page = 1); "
                "lengths q, kv; }"),
            "pages are no multiples of 16 rows");
}

INSTANTIATE_TEST_SUITE_P(Orders, HostPrefixes,
                         ::testing::Values(gpu::Order::early_copies, gpu::Order::late_copies));

}  // namespace
}  // namespace attn::host::scheduled_tests
