// Runs attentions on the host whose inputs have strides of 0, so that heads, batches or rows read
// the same elements, and compares outputs and gradients, which have elements of their own, with the
// reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/host/attention.h"

namespace attn::host {
namespace {

ir::Attention repeated(const std::string& clauses) {
  const std::string text =
      "attention repeated { dtype f16; outputs o, lse; grad q, k, v; mask q_idx >= kv_idx; "
      "dims B = 2, Hq = 4, Hkv = 2, Sq = 20, Skv = 33, D = 16; " +
      clauses + " }";
  return attention_of(text);
}

TEST(HostRepeated, InputsThatHeadsBatchesOrRowsShare) {
  std::vector<Subject> subjects;
  for (const char* clauses :
       {"layout v: strides(Skv * D, 0, D, 1);", "layout k: strides(0, Skv * D, D, 1), v: bhsd;",
        "layout k: strides(0, 0, D, 1), v: strides(0, 0, D, 1);",
        "layout q: strides(Hq * D, D, 0, 1);"}) {
    Subject subject{clauses, repeated(clauses), {}};
    for (const char* lowering : {"composite", "unfused"}) {
      auto forward = driver::lower(subject.attention, lowering, plan::Direction::forward);
      auto backward = driver::lower(subject.attention, lowering, plan::Direction::backward);
      ASSERT_TRUE(forward.ok()) << clauses << forward.error().to_text();
      ASSERT_TRUE(backward.ok()) << clauses << backward.error().to_text();
      subject.pairs.push_back({lowering, std::move(*forward), std::move(*backward)});
    }
    subjects.push_back(std::move(subject));
  }
  expect_reference(subjects);
}

}  // namespace
}  // namespace attn::host
