// Runs the forward of 8-bit attentions whose keys and values are in pages on an emulated GPU, and
// compares outputs with the reference: pages of any size, rows at any multiple of 8 bytes, keys or
// values alone in pages. Rows past the lengths, and pages that no table names, are NaN.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/host/attention.h"

namespace attn::host::narrow_pages_tests {
namespace {

Subject subject_of(const std::string& clauses) {
  const ir::Attention attention = attention_of("attention f { " + clauses + " }");
  Subject subject{clauses, attention, {}};
  const auto forward = driver::lower(attention, "native", plan::Direction::forward);
  if (!forward.ok()) {
    ADD_FAILURE() << clauses << ": " << forward.error().to_text();
    return subject;
  }
  subject.pairs.push_back(
      {"native", *forward, {}, gpu::Order::late_copies, tools::Unused::anything});
  return subject;
}

TEST(HostNarrowPages, AreTheReference) {
  constexpr const char* kScales =
      "dtype e4m3; quantize per_tensor, descale_q = 0.75, descale_k = 1.5, descale_v = 0.5, "
      "scale_s "
      "= 256, descale_s = 1 / 256, scale_o = 64; outputs o, lse, amax_s, amax_o; ";
  std::vector<Subject> subjects;
  for (const char* clauses :
       {"dims B = 2, Hq = 4, Hkv = 2, Sq = 40, Skv = 96, Dqk = 64, Dv = 72; layout paged(page = "
        "16); "
        "lengths kv;",
        "dims B = 2, Hq = 4, Hkv = 2, Sq = 40, Skv = 93, D = 72; layout paged(page = 16); lengths "
        "q, "
        "kv; mask q_idx >= kv_idx;",
        "dims B = 3, Hq = 2, Hkv = 1, Sq = 1, Skv = 301, D = 8; layout paged(page = 1, tables = "
        "2);",
        "dims B = 2, Hq = 3, Hkv = 3, Sq = 130, Skv = 47, D = 152; layout k: paged(page = 12), v: "
        "paged(page = 48); dropout 0.1;",
        "dims B = 1, Hq = 2, Hkv = 2, Sq = 33, Skv = 70, D = 88; layout k: paged(page = 64); "
        "lengths "
        "kv;",
        "dims B = 2, Hq = 4, Hkv = 2, Sq = 33, Skv = 70, D = 120; layout q: thd, o: thd, k: "
        "paged(page = 10), v: thd;",
        "dims B = 2, Hq = 4, Hkv = 2, Sq = 33, Skv = 70, D = 104; layout v: paged(page = 5);"}) {
    subjects.push_back(subject_of(kScales + std::string(clauses)));
  }
  expect_reference(subjects);
}

}  // namespace
}  // namespace attn::host::narrow_pages_tests
