// Runs one-sided masks on the host, lowered to lengths of each batch or narrowed to the visible
// rows and columns, and compares outputs and gradients with the reference.
#include <gtest/gtest.h>

#include "tests/host/attention.h"

namespace attn::host::seqlens_tests {
namespace {

// Batches whose lengths are -20, 17, 54, 91 and 128.
constexpr const char* kLengths = "tensor n: i32[B] = 37 * i0 - 20; ";
const std::string kUsual = "layout bshd; grad q, k, v; ";
constexpr const char* kSizes = "dims B = 5, Hq = 4, Hkv = 2, Sq = 77, Skv = 101, D = 16; ";
const std::string kGrouped = kSizes + kUsual;

// `more` are clauses common to all.
void expect_reference_of(const std::vector<std::string>& clauses,
                         const std::string& more = kGrouped, const char* lowering = "seqlens") {
  std::vector<Subject> subjects;
  for (const std::string& some : clauses) {
    const std::string text = std::string("attention padded { dtype f16; outputs o, lse; ") + more +
                             kLengths + some + " }";
    const ir::Attention attention = attention_of(text);
    auto forward = driver::lower(attention, lowering, plan::Direction::forward);
    auto backward = driver::lower(attention, lowering, plan::Direction::backward);
    ASSERT_TRUE(forward.ok()) << text << forward.error().to_text();
    ASSERT_TRUE(backward.ok()) << text << backward.error().to_text();
    subjects.push_back({text, attention, {{lowering, std::move(*forward), std::move(*backward)}}});
  }
  expect_reference(subjects);
}

TEST(HostLengths, OfKeysAndOfRows) {
  expect_reference_of({
      "mask kv_idx < n[b];",
      "mask n[b] >= kv_idx && q_idx >= kv_idx;",
      "mask q_idx < n[b];",
      "mask n[b] > q_idx && kv_idx < n[b] && q_idx >= kv_idx && q_idx - kv_idx < 40;",
      "mask kv_idx < n[b] && kv_idx <= 3 * b + 2;",
      "mask kv_idx <= b * 11;",
      "tensor m: i64[B] = 30 * i0; mask kv_idx < m[b] && q_idx < min(n[b] + 9, 60);",
      "param p: i32; mask kv_idx < p && kv_idx % 3 != 1;",
  });
}

TEST(HostLengths, OfWhatIsAlignedOrShifted) {
  expect_reference_of({
      "align bottom_right; mask q_idx >= kv_idx && q_idx < n[b];",
      "align bottom_right; mask kv_idx + 3 <= n[b] // 2;",
      "mask kv_idx - 5 < n[b];",
      "mask q_idx - 70 < n[b] - 100;",
  });
}

TEST(HostLengths, AtTheEndsOf32Bits) {
  expect_reference_of({
      "tensor far: i32[B] = where(i0 % 2 == 0, -2147483647, 2147483647);"
      "mask kv_idx + 5 <= far[b];",
      "tensor far: i32[B] = where(i0 % 2 == 0, -2147483647, 2147483647);"
      "mask kv_idx - 5 <= far[b] && q_idx - 9 < far[b];",
  });
}

// Masks that cuDNN would mistake for padding (engines/cudnn/expression.h).
TEST(HostLengths, ComparisonsLikePaddingInOneKernel) {
  expect_reference_of(
      {
          "mask q_idx < n[b] && kv_idx < n[b];",
          "mask q_idx < n[b] || n[b] >= kv_idx;",
          "tensor m: i32[Hq] = 25 * i0; mask q_idx < m[h] && kv_idx <= m[h];",
          "param p: i32; mask q_idx >= p && kv_idx < n[b];",
          "mask q_idx < n[b]; score where(kv_idx < n[b], score, 0.5 * score);",
      },
      kGrouped, "composite");
}

// Rows beyond a length see only the sink.
TEST(HostLengths, BesideOtherClauses) {
  expect_reference_of({
      "sink 0.5 * h; mask kv_idx < n[b] && q_idx < n[b];",
      "score 20 * tanh(score / 20) + 0.1 * kv_idx; mask kv_idx < n[b] && q_idx < n[b];",
      "dropout 0.25, (q_idx + kv_idx) % 4 != 0; mask kv_idx < n[b];",
      "tensor doc: i32[Skv]; mask kv_idx < n[b] && doc[kv_idx] <= q_idx // 20;",
  });
}

TEST(HostLengths, OfWhatIsLearned) {
  expect_reference_of(
      {
          "learn t: f32[Hq, Skv]; score score + t[h, kv_idx]; mask kv_idx < n[b] && q_idx < n[b];"
          "grad q, k, v, t;",
          "learn t: f32[Hq]; score score * t[h]; mask kv_idx < n[b]; grad t;",
      },
      std::string(kSizes) + "layout bshd; ");
}

TEST(HostLengths, OfKeysBesideRowsOneBehindTheOther) {
  expect_reference_of({"mask kv_idx < n[b] && q_idx >= kv_idx;"},
                      std::string(kSizes) + "layout q: thd, o: thd; grad q, k, v; ");
}

TEST(HostLengths, OfOneRowAndOfOneBatch) {
  expect_reference_of({"mask kv_idx < n[b];", "mask kv_idx < n[b] && q_idx < n[b];"},
                      "dims B = 5, Hq = 8, Hkv = 2, Sq = 1, Skv = 130, D = 16; " + kUsual);
  expect_reference_of({"mask kv_idx < n[b] + 55;", "mask q_idx < n[b] + 44;"},
                      "dims B = 1, Hq = 2, Hkv = 2, Sq = 64, Skv = 64, D = 16; " + kUsual);
}

// Rows without a visible key have o 0 and lse -inf, and invisible keys have zero gradients.
TEST(HostNarrowed, IsWhatTheMaskShows) {
  expect_reference_of(
      {
          "mask kv_idx < 40;",
          "mask q_idx >= 33;",
          "mask abs(kv_idx - 50) < 20;",
          "mask q_idx // 16 == 2;",
          "mask q_idx >= 30 && q_idx < 61 && kv_idx // 20 == 2 && (q_idx + kv_idx) % 5 != 0;",
          "mask abs(q_idx - 20) < 7 && q_idx >= kv_idx; score score + 0.01 * kv_idx;",
      },
      kGrouped, "parts");
}

}  // namespace
}  // namespace attn::host::seqlens_tests
