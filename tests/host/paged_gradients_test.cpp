// Runs backwards of attentions whose keys and values are in pages, whose gradients are those of q
// and of learned tensors, on an emulated GPU: by kernels of warp groups, of warps, and of one
// launch, in 16 bits and in 8. Rows past the lengths, and pages that no table names, are NaN.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/host/attention.h"

namespace attn::host::paged_gradients_tests {
namespace {

enum class Kernels : std::uint8_t { groups, warps, of_one_launch };

void add(const std::string& clauses, Kernels kernels, std::vector<Subject>& subjects) {
  target::Context forward, backward;
  forward.direction = plan::Direction::forward, backward.direction = plan::Direction::backward;
  for (target::Context* context : {&forward, &backward}) {
    context->rewrites.warp_groups = kernels != Kernels::warps;
    context->rewrites.short_forms = kernels == Kernels::of_one_launch;
    context->rewrites.long_forms = kernels != Kernels::of_one_launch;
  }
  forward.rewrites.long_forms = true;
  Subject subject{
      clauses, driver::training_forward(attention_of("attention f { " + clauses + " }")), {}};
  const auto of_forward = driver::lower(subject.attention, "native", forward);
  const auto of_backward = driver::lower(subject.attention, "native", backward);
  ASSERT_TRUE(of_forward.ok()) << clauses << ": " << of_forward.error().to_text();
  ASSERT_TRUE(of_backward.ok()) << clauses << ": " << of_backward.error().to_text();
  const bool early = subjects.size() % 2 == 0;
  subject.pairs.push_back({early ? "early copies" : "late copies", *of_forward, *of_backward,
                           early ? gpu::Order::early_copies : gpu::Order::late_copies,
                           tools::Unused::anything});
  subjects.push_back(std::move(subject));
}

constexpr const char* kPages[] = {
    "dims B = 3, Hq = 4, Hkv = 2, Sq = 70, Skv = 93, D = 64; layout paged(page = 16); grad q; "
    "lengths "
    "q, kv; mask q_idx >= kv_idx; ",
    "dims B = 2, Hq = 3, Hkv = 3, Sq = 33, Skv = 50, Dqk = 72, Dv = 40; layout k: paged(page = 7), "
    "v: "
    "paged(page = 12); grad q, bias; learn bias: f32[Hq, Sq, Skv]; score score + bias[h, q_idx, "
    "kv_idx]; "};

TEST(HostPagedGradients, AreTheReference) {
  std::vector<Subject> subjects;
  for (const std::string clauses : kPages) {
    for (const Kernels kernels : {Kernels::groups, Kernels::warps, Kernels::of_one_launch})
      add(clauses + "outputs o, lse;", kernels, subjects);
  }
  add("dims B = 2, Hq = 2, Hkv = 1, Sq = 40, Skv = 61, D = 32; layout q: thd, o: thd, k: "
      "paged(page "
      "= 4); grad q, v; outputs o, lse; deterministic;",
      Kernels::groups, subjects);
  expect_reference(subjects);
}

TEST(HostPagedGradients, Of8BitsAreTheReference) {
  constexpr const char* kScales =
      "dtype e4m3; quantize per_tensor, do: e5m2, descale_q = 0.75, descale_k = 1.5, descale_v = "
      "0.5, scale_s = 256, descale_s = 1 / 256, descale_do = 0.5, scale_dp = 64, descale_dp = 1 / "
      "64, scale_o = 64, descale_o = 1 / 64, scale_dq = 16, scale_dk = 16, scale_dv = 16; outputs "
      "o, "
      "lse; ";
  std::vector<Subject> subjects;
  for (const std::string clauses : kPages) add(kScales + clauses, Kernels::groups, subjects);
  expect_reference(subjects);
}

}  // namespace
}  // namespace attn::host::paged_gradients_tests
