// Runs attentions whose rows the tensor memory accelerator cannot read, by kernels of warps
// (compiler/device/attn/mma_rows.cuh) on an emulated GPU, and compares outputs and gradients with
// the reference: any head dimension, rows that begin anywhere, elements that are apart, rows that
// heads share. On compute capability 9.0 nobody asks for these kernels. Rows past the lengths are
// NaN.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "tests/host/attention.h"

namespace attn::host::any_rows_tests {
namespace {

// Adds the forward, and with `trains` the pair of programs that a training runs; GPUs and orders of
// copies take turns.
void add(const std::string& clauses, bool trains, std::vector<Subject>& subjects) {
  constexpr std::int64_t kGpus[] = {90, 80, 89};
  const ir::Attention attention = attention_of("attention f { " + clauses + " }");
  Subject subject{clauses, trains ? driver::training_forward(attention) : attention, {}};
  const std::size_t turn = subjects.size();
  target::Context forward, backward;
  forward.direction = plan::Direction::forward, backward.direction = plan::Direction::backward;
  for (target::Context* context : {&forward, &backward}) {
    context->gpu.sm = kGpus[turn % std::size(kGpus)];
    context->rewrites.short_forms = turn % 2 == 1;
  }
  const auto of_forward = driver::lower(subject.attention, "native", forward);
  ASSERT_TRUE(of_forward.ok()) << clauses << ": " << of_forward.error().to_text();
  const bool early = turn % 2 == 0;
  Pair pair{early ? "early copies" : "late copies",
            *of_forward,
            {},
            early ? gpu::Order::early_copies : gpu::Order::late_copies,
            tools::Unused::anything};
  if (trains) {
    const auto of_backward = driver::lower(subject.attention, "native", backward);
    ASSERT_TRUE(of_backward.ok()) << clauses << ": " << of_backward.error().to_text();
    pair.backward = *of_backward;
  }
  subject.pairs.push_back(std::move(pair));
  subjects.push_back(std::move(subject));
}

// Head dimensions that are odd, even, and multiples of 4, small and large, of keys and of values.
TEST(HostAnyRows, OfEveryHeadDimensionAreTheReference) {
  std::vector<Subject> subjects;
  for (const auto& [rows, keys, of_keys, of_values] : {std::tuple(1, 1, 1, 1),
                                                       {7, 129, 3, 13},
                                                       {129, 7, 100, 100},
                                                       {1, 1333, 65, 130},
                                                       {177, 201, 34, 44},
                                                       {60, 75, 191, 97},
                                                       {65, 130, 255, 254}}) {
    const std::string sizes =
        fmt::format("dims B = 3, Hq = 5, Hkv = 1, Sq = {}, Skv = {}, Dqk = {}, Dv = {}; ", rows,
                    keys, of_keys, of_values);
    for (const char* clauses :
         {"lengths q, kv; outputs o, lse;",
          "dtype f16; mask q_idx > kv_idx + 3; dropout 0.2; deterministic; outputs o, lse;",
          "layout thd; outputs o, lse;"})
      add(sizes + clauses, rows > 1, subjects);
  }
  expect_reference(subjects);
}

TEST(HostAnyRows, OfEveryLayoutAreTheReference) {
  const std::string sizes = "dims B = 2, Hq = 4, Hkv = 2, Sq = 70, Skv = 93, D = {}; ";
  std::vector<Subject> subjects;
  for (const auto& [depth, clauses] :
       {std::tuple(40,
                   "layout q: strides(4 * Sq * 43, 43, 4 * 43, 1), k: strides(1, 2, 4, 4 * "
                   "Skv), v: strides(Skv * 40, 0, 40, 1), o: strides(Sq * 168, 42, 168, 1);"),
        {64,
         "layout q: bhsd, k: strides(Skv * 132, 66, 132, 1), v: strides(Skv * 136, 68, 136, "
         "1); mask q_idx >= kv_idx;"},
        {13, "layout packed_qkv; score 20 * tanh(score / 20);"},
        {100, "layout q: thd, o: thd, k: thd, v: strides(Skv * 202, 101, 202, 1);"}})
    add(fmt::format(fmt::runtime(sizes), depth) + clauses + " outputs o, lse; grad q, k;", true,
        subjects);
  for (const char* clauses : {"layout paged(page = 7); lengths q, kv; mask q_idx >= kv_idx;",
                              "layout k: paged(page = 16), v: paged(page = 1); lengths kv;"})
    add(fmt::format(fmt::runtime(sizes), 37) + clauses + std::string(" outputs o, lse; grad q;"),
        true, subjects);
  expect_reference(subjects);
}

// What follows from scores, and what rows of o become.
TEST(HostAnyRows, OfEveryClauseAreTheReference) {
  const std::string sizes = "dims B = 2, Hq = 4, Hkv = 2, Sq = 70, Skv = 93, D = 21; ";
  std::vector<Subject> subjects;
  for (const char* clauses :
       {"learn bias: bf16[Hq, Sq, Skv]; score score + bias[h, q_idx, kv_idx]; grad q, k, v, bias;",
        "learn gate: bf16[B, Hq, Sq, Dv]; epilogue o * sigmoid(gate[b, h, q_idx, d_idx]); "
        "outputs o, o_inner, lse; grad q, k, v, gate;",
        "learn sinks: f32[Hq]; sink sinks[h]; mask q_idx >= kv_idx; grad q, k, v, sinks;",
        "weight sigmoid(score); grad q, k, v;",
        "tensor offsets: i32[Hq]; mask kv_idx - q_idx <= offsets[h]; grad q, v;"})
    add(sizes + clauses, true, subjects);
  // Few keys, whose backward is one launch, and their forwards that walk items.
  for (const char* clauses :
       {"dims B = 9, Hq = 3, Sq = 49, Skv = 49, D = 27; learn bias: bf16[Hq, Sq, Skv]; score score "
        "+ bias[h, q_idx, kv_idx]; grad q, k, v, bias;",
        "dims B = 9, Hq = 3, Sq = 42, Skv = 42, D = 50; lengths q, kv; grad q, k, v;"}) {
    if (subjects.size() % 2 == 0) add(sizes + "grad v;", true, subjects);
    add(clauses, true, subjects);
  }
  // 8-bit floats.
  add(sizes +
          "dtype e4m3; quantize per_tensor, do: e5m2, gradients: e5m2, descale_q = 0.75, "
          "descale_v = 0.5, scale_s = 256, descale_s = 1 / 256, scale_dp = 64, descale_dp = 1 / "
          "64, scale_o = 64, descale_o = 1 / 64, scale_dq = 16, scale_dk = 16, scale_dv = 16; "
          "outputs o, lse, amax_s, amax_o; grad q, k, v;",
      true, subjects);
  expect_reference(subjects);
}

}  // namespace
}  // namespace attn::host::any_rows_tests
