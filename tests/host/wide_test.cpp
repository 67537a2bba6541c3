// Runs masks and scores of 64-bit integers on the host, by kernels of cuDNN's forms and by attnc's
// own, and compares outputs and gradients with the reference.
#include <gtest/gtest.h>

#include "tests/host/attention.h"

namespace attn::host::wide_tests {
namespace {

// Values that differ beyond 32 bits alone, have signs, and leave what a double holds.
constexpr const char* kTensors =
    "tensor id: i64[B, Skv] = (long(i1 // 9 % 4 - 1) << 32) + i0; "
    "tensor hash: i64[Skv] = long(i0 * 77 + 5) * 1000003 * 1000003 * 4099; "
    "tensor n: i64[B] = long(i0 * 40) << where(i0 == 2, 40, 0); ";

void expect_reference_of(const std::vector<std::string>& clauses) {
  std::vector<Subject> subjects;
  for (const std::string& some : clauses) {
    const std::string text = std::string("attention wide { dtype f16; outputs o, lse; ") +
                             "dims B = 3, Hq = 4, Hkv = 2, Sq = 77, Skv = 101, D = 16; " +
                             kTensors + some + " grad q, k, v; }";
    Subject subject{text, attention_of(text), {}};
    for (const char* lowering : {"composite", "native"}) {
      auto forward = driver::lower(subject.attention, lowering, plan::Direction::forward);
      auto backward = driver::lower(subject.attention, lowering, plan::Direction::backward);
      ASSERT_TRUE(forward.ok()) << text << forward.error().to_text();
      ASSERT_TRUE(backward.ok()) << text << backward.error().to_text();
      subject.pairs.push_back({lowering, std::move(*forward), std::move(*backward)});
    }
    subjects.push_back(std::move(subject));
  }
  expect_reference(subjects);
}

TEST(HostWide, ComparisonsOfRowsAndColumns) {
  expect_reference_of({
      "mask id[b, q_idx] == id[b, kv_idx];",
      "mask id[b, q_idx] != id[b, kv_idx];",
      "mask id[b, q_idx] < id[b, kv_idx] || hash[q_idx] >= hash[kv_idx];",
      "mask hash[q_idx] > hash[kv_idx] && id[b, q_idx] <= id[b, kv_idx];",
  });
}

TEST(HostWide, BoundsIndexesAndArithmetic) {
  expect_reference_of({
      "mask kv_idx < n[b] || q_idx >= kv_idx;",
      "tensor t: i32[5] = i0; mask t[hash[kv_idx] // 7 % 5] == t[hash[q_idx] % 5];",
      "mask (hash[q_idx] ^ hash[kv_idx]) // (long(1) << 50) % 3 != 1;",
      "mask (hash[q_idx] >> kv_idx % 64 & 1) == 1;",
      "score score + 0.001 * (hash[kv_idx] % 997) - (id[b, q_idx] >> 31); mask q_idx >= kv_idx;",
      "score where(score > 0, score, score * float(max(id[b, kv_idx], id[b, q_idx]) >> 32));",
  });
}

TEST(HostWide, ConversionsTo32BitsAndLargeNumbers) {
  expect_reference_of({
      "mask int(hash[q_idx]) * 65537 >= int(hash[kv_idx]);",
      "mask int(id[b, q_idx] + kv_idx * 77777) ** 3 < 1000003;",
      "mask hash[q_idx] + long(1099511627776) > hash[kv_idx] - long(-5000000000);",
      "score score + 0.01 * (int(id[b, kv_idx] * 3 + q_idx) % 97); mask int(n[b]) >= kv_idx - 70;",
  });
}

TEST(HostWide, IndexesBeyond32BitsAreOutOfRange) {
  const ir::Attention attention = attention_of(
      "attention f { dims B = 1, Hq = 1, Sq = 4, D = 8; tensor t: f32[4]; "
      "tensor at: i64[Skv] = long(1) << 32; score score + t[at[kv_idx]]; }");
  const reference::Inputs inputs =
      tools::make_inputs(attention, {}, tools::Missing::refuse).value().values;
  const auto outputs = tools::run_reference(attention, inputs, {});
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.error().code, ErrorCode::binding);
}

}  // namespace
}  // namespace attn::host::wide_tests
