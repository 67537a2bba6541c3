// Runs forwards without output o on the host, with each lowering, and compares the statistics.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/host/attention.h"

namespace attn::host::outputs_tests {
namespace {

bool binds_o(const plan::Program& program) {
  return std::ranges::find(program.tensors, "o", &plan::TensorInfo::name) != program.tensors.end();
}

TEST(HostOutputs, StatisticsAlone) {
  std::vector<Subject> subjects;
  std::size_t pairs = 0;
  std::vector<std::string> strategies = strategies_on_host();
  strategies.emplace_back("unfused");
  for (const char* clauses : {
           "outputs lse; mask q_idx >= kv_idx;",
           "outputs lse; lengths q, kv;",
           "outputs lse; layout thd; mask q_idx >= kv_idx;",
           "outputs lse; layout o: strides(9000, 1100, 20, 1); score 2 * tanh(score / 2);",
           "outputs max, sum_exp; mask abs(q_idx - kv_idx) < 5;",
           "outputs lse; dims B = 1, Hq = 2, Hkv = 1, Sq = 9, Skv = 24, Dqk = 8, Dv = 5; lengths "
           "kv;",
           "outputs lse; tensor sinks: f32[Hq]; sink sinks[h]; mask kv_idx < q_idx - 2;",
           "outputs lse; mask q_idx // 8 == kv_idx // 8;",
           "outputs lse; tensor doc: i32[B, Skv] monotone runs(4, 16) = i1 // 8;"
           "mask doc[b, q_idx] == doc[b, kv_idx];",
           "outputs lse; tensor n: i32[B] = 7 * i0 + 3; mask kv_idx < n[b];",
           "outputs lse; score score - 0.5 * q_idx;",
       }) {
    const std::string usual = "dims B = 2, Hq = 4, Hkv = 2, Sq = 32, Skv = 32, D = 8; ";
    const bool sized = std::string(clauses).find("dims") != std::string::npos;
    const std::string text =
        std::string("attention statistics { dtype f16; ") + (sized ? "" : usual) + clauses + " }";
    Subject subject{text, attention_of(text), {}};
    for (const std::string& lowering : strategies) {
      auto forward = driver::lower(subject.attention, lowering, plan::Direction::forward);
      if (!forward.ok()) continue;
      EXPECT_FALSE(binds_o(*forward)) << text;
      subject.pairs.push_back({lowering, std::move(*forward), {}});
    }
    EXPECT_FALSE(subject.pairs.empty()) << text;
    pairs += subject.pairs.size();
    subjects.push_back(std::move(subject));
  }
  EXPECT_GT(pairs, 15U);
  expect_reference(subjects);
}

// The program is not run: the kernel that fills outputs without keys cannot run on the host.
TEST(HostOutputs, StatisticsAloneWithoutKeys) {
  const auto program = driver::lower(
      attention_of("attention none { dims B = 2, Hq = 4, Sq = 5, Skv = 0, D = 8; outputs lse; }"));
  ASSERT_TRUE(program.ok()) << program.error().to_text();
  EXPECT_FALSE(binds_o(*program));
}

}  // namespace
}  // namespace attn::host::outputs_tests
