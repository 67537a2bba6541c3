#include "compiler/engines/native/bands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/compiler/engines/native/lowered.h"

namespace attn::engines::bands_tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kSizes;
using testing::lowered;
using ::testing::Not;
using testing::source_of;
using testing::step_of;
using testing::stored;

// Masks that are a band, though they read lengths, params, or tensors of each batch or head.
constexpr const char* kBands[] = {
    "align bottom_right; lengths kv; mask q_idx >= kv_idx;",
    "align bottom_right; lengths q, kv; mask 0 <= q_idx - kv_idx < 100;",
    "layout q: thd, o: thd, k: paged(page = 64), v: paged(page = 64); align bottom_right; "
    "lengths q, kv; mask q_idx >= kv_idx;",
    "param w: i32; mask q_idx >= kv_idx && (w < 0 || q_idx - kv_idx <= w);",
    "tensor n: i32[B]; mask kv_idx < n[b] || q_idx >= kv_idx;",
    "tensor n: i32[B]; mask (q_idx + n[b]) // 64 == (kv_idx + n[b]) // 64;",
    "tensor w: i32[Hq]; mask abs(q_idx - kv_idx) < w[h];",
};

TEST(NativeBands, BlocksOfBandsAreComputed) {
  for (const char* clauses : kBands) {
    const NativeProgram made = lowered(std::string(kSizes) + clauses).value();
    const plan::KernelStep& step = step_of(made);
    EXPECT_EQ(step.launches.back().kernel, "attn_forward");
    EXPECT_THAT(step.source, AllOf(HasSubstr("kBand = true;"), HasSubstr("Band columns("),
                                   Not(HasSubstr("attn_lists"))))
        << clauses;
    EXPECT_FALSE(made.work.lists) << clauses;
    EXPECT_TRUE(step.facts->has_band);
    EXPECT_FALSE(step.facts->blocks);
  }
}

// Nothing is stored of a band, whatever the number of scores: the counter of tiles alone.
TEST(NativeBands, BandsNeedNoMemory) {
  const std::string mask = "; tensor n: i32[B]; mask q_idx + n[b] >= kv_idx;";
  for (const char* sizes : {"B = 64, Sq = 512, Skv = 8192", "B = 64, Sq = 8192, Skv = 131072"}) {
    EXPECT_THAT(stored(sizes + mask), ::testing::ElementsAre(std::pair("native.counter", 1)));
  }
}

// A bound of which nothing is known, since a product may wrap, has no part.
TEST(NativeBands, MasksWhoseProductsMayWrapAreNoBands) {
  const auto source = [](const std::string& mask) {
    return source_of("dims B = 2, Hq = 2, Sq = 256, Skv = 4096, D = 64; tensor t: i32[B]; mask " +
                     mask + ";");
  };
  EXPECT_THAT(source("kv_idx * 4 < t[b]"), HasSubstr("kBand = true"));
  EXPECT_THAT(source("(kv_idx * 1024 + t[b]) * 1048576 < 7"), Not(HasSubstr("kBand = true")));
}

// Blocks of a mask without a begin are whole pages.
TEST(NativeBands, BlocksOfBandsBeginWhereTheirMasksAllow) {
  const std::string decode =
      "dims B = 64, Hq = 8, Hkv = 2, Sq = 1, Skv = 8192, D = 128; layout paged(page = 64); "
      "align bottom_right; lengths kv; ";
  EXPECT_THAT(source_of(decode + "mask q_idx >= kv_idx;"), HasSubstr("kKeyPiece = 64;"));
  EXPECT_THAT(source_of(decode + "mask 0 <= q_idx - kv_idx < 1024;"), HasSubstr("kKeyPiece = 16;"));
}

// What a tensor says of the last keys alone: no list is made, and a schedule divides the work.
TEST(NativeBands, MasksThatReadATensorForFewKeysAreBands) {
  const std::string sizes = "dims B = 4, Hq = 8, Hkv = 2, Sq = 64, Skv = 2048, D = 128; ";
  const std::string bits =
      "align bottom_right; tensor t: i64[B, Sq]; let node = kv_idx - (q_idx - q_raw); "
      "mask node < 0 || (t[b, q_raw] >> clamp(node, 0, 63) & 1) == 1;";
  const NativeProgram made =
      lowered(sizes + "lengths kv; layout paged(page = 64); " + bits).value();
  EXPECT_THAT(step_of(made).source, AllOf(HasSubstr("kBand = true;"), HasSubstr("attn_schedule")));
  EXPECT_FALSE(made.work.at_most);
  EXPECT_THAT(source_of(sizes + bits),
              AllOf(HasSubstr("kBand = true;"), Not(HasSubstr("list_keys"))));
}

TEST(NativeBands, MasksThatReadATensorForManyKeysAreListed) {
  for (const char* mask : {"t[b, q_idx] == t[b, kv_idx]", "kv_idx < 100 || t[b, kv_idx] == 1",
                           "t[b, kv_idx] == 1 && q_idx >= kv_idx"}) {
    EXPECT_THAT(source_of(std::string(kSizes) + "tensor t: i32[B, Skv]; mask " + mask + ";"),
                HasSubstr("list_keys"))
        << mask;
  }
}

TEST(NativeBands, UnionsOfBandsAreListed) {
  EXPECT_THAT(source_of(std::string(kSizes) + "align bottom_right; lengths kv; "
                                              "mask kv_idx < 4 || abs(q_idx - kv_idx) < 64;"),
              HasSubstr("list_keys"));
}

}  // namespace
}  // namespace attn::engines::bands_tests
