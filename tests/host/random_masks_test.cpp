// Runs random masks, split into parts, lowered to page lists, or by attnc's own kernels on an
// emulated GPU, on the host, and compares outputs and gradients with the reference. ATTN_STRESS=N
// in the environment runs N times as many; ATTN_SEED=N runs only the spec with this seed.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string_view>

#include "tests/host/attention.h"
#include "tests/support/random_spec.h"
#include "tests/unit/runtime/plan/program_text.h"

namespace attn::host::random_masks_tests {
namespace {

constexpr int kBatches = 3;  // the first at every change, the others in the night
constexpr int kMasks = 50;   // per batch
constexpr int kPaged = 12;   // per batch

int times(int count) {
  const char* stress = std::getenv("ATTN_STRESS");
  return stress == nullptr ? count : count * std::max(1, std::atoi(stress));
}

// The forward, the backward, or both in parts.
std::optional<Pair> in_parts(const ir::Attention& attention) {
  auto forward = driver::lower(attention, "parts", plan::Direction::forward);
  auto backward = driver::lower(attention, "parts", plan::Direction::backward);
  if (!forward.ok() && !backward.ok()) return std::nullopt;
  if (!forward.ok()) forward = driver::lower(attention, "composite", plan::Direction::forward);
  if (!forward.ok()) return std::nullopt;
  Pair pair{"parts", std::move(*forward), {}};
  if (backward.ok()) pair.backward = std::move(*backward);
  return pair;
}

class HostRandomMasks : public ::testing::TestWithParam<int> {};

TEST_P(HostRandomMasks, InPartsAreTheReference) {
  const int wanted = times(kMasks);
  std::vector<Subject> subjects;
  std::uint64_t seed = static_cast<std::uint64_t>(GetParam()) * 1'000'000;
  int tried = 0;
  for (; static_cast<int>(subjects.size()) < wanted && tried < 4 * wanted; ++tried) {
    const std::string text = attn::testing::random_spec(seed++);
    const ir::Attention attention = attention_of(text);
    std::optional<Pair> pair = in_parts(attention);
    if (pair) subjects.push_back({text, attention, {std::move(*pair)}});
  }
  EXPECT_EQ(subjects.size(), static_cast<std::size_t>(wanted)) << "of " << tried << " have parts";
  expect_reference(subjects);
}

// A random spec at sizes that have pages.
std::optional<Subject> in_pages(std::uint64_t seed) {
  const std::string text = attn::testing::random_spec(seed);
  const std::string rows = std::to_string((2 + seed % 3) * 64);
  const std::string columns = std::to_string((2 + seed / 3 % 4) * 64);
  Subject subject{text, attention_of(text, {{"Sq", rows}, {"Skv", columns}}), {}};
  auto program = driver::lower(subject.attention, "block_sparse", plan::Direction::forward);
  if (!program.ok()) return std::nullopt;
  subject.pairs.push_back({"block_sparse", std::move(*program), {}});
  return subject;
}

TEST_P(HostRandomMasks, InPagesAreTheReference) {
  const int wanted = times(kPaged);
  std::vector<Subject> subjects;
  std::uint64_t seed = static_cast<std::uint64_t>(GetParam()) * 1'000'000;
  for (int tried = 0; static_cast<int>(subjects.size()) < wanted && tried < 8 * wanted; ++tried) {
    std::optional<Subject> subject = in_pages(seed++);
    if (subject) subjects.push_back(std::move(*subject));
  }
  EXPECT_EQ(subjects.size(), static_cast<std::size_t>(wanted));
  expect_reference(subjects);
}

// What random specs do not have, and attnc's own kernels compute in ways of their own. (q_raw is
// within tensors for every alignment.)
constexpr std::string_view kClauses[] = {
    "",
    "deterministic;",
    "dropout 0.2;",
    "lengths q, kv;",
    "lengths kv; deterministic;",
    "tensor t: f32[Hq]; sink t[h];",
    "tensor t: i32[Sq + Skv] = i0 // 37; mask t[q_raw] == t[kv_idx];",
    "tensor t: bool[B, Skv] = (i0 + i1) % 5 != 0; mask t[b, kv_idx] || q_raw % 3 == 0;",
    "tensor t: bool[Skv] = i0 % 7 != 0; mask t[kv_idx];",
    "tensor t: f32[Sq, Skv]; mask t[q_raw, kv_idx] > -0.5;",
    "tensor t: f16[Hq, Sq, Skv]; score score + t[h, q_raw, kv_idx];",
    "tensor t: f32[Skv]; score score * (1.0 + 0.1 * t[kv_idx]); dropout 0.1;",
    "score sqrt(abs(score) + 0.25);",
    "score min(max(score, -1.0), 1.0);",
    "score where(score > 0.3, score, 0.1 * score);",
    "param n: i32; mask kv_idx < n + 30 || q_raw > 20;",
    "learn g: f32[Hq, Skv]; let c = cumsum(g[h, kv_idx] / 8); score score + c[min(q_raw, Skv - 1)] "
    "- "
    "c[kv_idx];",
    "learn w: f32[D]; prologue q: x[d_idx] * rsqrt(sum(x[d_idx] ** 2) / D + 0.5) * (1 + w[d_idx] / "
    "4); "
    "prologue k: x[(d_idx + 1) % D];",
    "weight relu(exp(score) - 1) / sum(abs(exp(score) - 1));",
    "weight score / sum(abs(score) + 0.5);",
    "learn g: bf16[B, Hq, Sq, Dv]; gate sigmoid(g[b, h, q_raw, d_idx]);",
    "tensor g: f32[Hq, Dv]; epilogue o * g[h, d_idx] + 0.1 * q_raw;"};

// Weights over a sum have no sink, and others one.
void remove_sink(std::string& text) {
  const std::size_t begin = text.find("sink ");
  if (begin != text.npos) text.erase(begin, text.find(';', begin) + 1 - begin);
}

// A random spec with one of these clauses, and its gradients, also through lse. Nothing for head
// dimensions that the kernels do not have.
std::optional<Subject> by_native(std::uint64_t seed) {
  std::string text = attn::testing::random_spec(seed);
  const std::string_view clause = kClauses[seed % std::size(kClauses)];
  const bool has_sink = clause.find("sink ") != clause.npos;
  if (has_sink || clause.starts_with("weight")) remove_sink(text);
  text.insert(text.rfind('}'), clause);
  constexpr std::string_view kGrad = "grad q, k, v";
  if (seed % 3 == 0) text.insert(text.find(kGrad) + kGrad.size(), ", lse");
  if (clause.starts_with("learn g")) text.insert(text.find(kGrad) + kGrad.size(), ", g");
  Subject subject{text, attention_of(text), {}};
  auto forward = driver::lower(driver::training_forward(subject.attention), "native",
                               plan::Direction::forward);
  auto backward = driver::lower(subject.attention, "native", plan::Direction::backward);
  if (!forward.ok() || !backward.ok()) return std::nullopt;
  const bool early = std::popcount(seed) % 2 == 0;  // of each clause, some
  const auto order = early ? gpu::Order::early_copies : gpu::Order::late_copies;
  subject.pairs.push_back({"native", std::move(*forward), std::move(*backward), order});
  return subject;
}

TEST_P(HostRandomMasks, ByAttncsKernelsAreTheReference) {
  const auto wanted = static_cast<std::size_t>(times(static_cast<int>(std::size(kClauses))));
  std::vector<Subject> subjects;
  std::uint64_t seed = static_cast<std::uint64_t>(GetParam()) * 1'000'000;
  for (std::size_t tried = 0; subjects.size() < wanted && tried < 2 * wanted; ++tried) {
    std::optional<Subject> subject = by_native(seed++);
    if (subject) subjects.push_back(std::move(*subject));
  }
  EXPECT_EQ(subjects.size(), wanted);
  expect_reference(subjects);
}

TEST(HostRandomMask, OfOneSeed) {
  const char* seed = std::getenv("ATTN_SEED");
  if (seed == nullptr) GTEST_SKIP();
  const std::string text = attn::testing::random_spec(std::strtoull(seed, nullptr, 10));
  const ir::Attention attention = attention_of(text);
  std::optional<Pair> pair = in_parts(attention);
  ASSERT_TRUE(pair.has_value()) << text;
  std::cout << plan::to_text(pair->forward);
  if (pair->backward) std::cout << plan::to_text(*pair->backward);
  expect_reference({{text, attention, {std::move(*pair)}}});
}

INSTANTIATE_TEST_SUITE_P(Batches, HostRandomMasks, ::testing::Values(0));
INSTANTIATE_TEST_SUITE_P(NightlyBatches, HostRandomMasks, ::testing::Range(1, kBatches));

}  // namespace
}  // namespace attn::host::random_masks_tests
