// Runs gradients of learned tensors with scores in tiles of rows on the host, and compares them
// with the reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/host/attention.h"

namespace attn::host::tiles_tests {
namespace {

constexpr const char* kSizes = "B = 2, Hq = 6, Hkv = 2, Sq = 29, Skv = 37, D = 8";
constexpr const char* kFused = "composite";
constexpr const char* kSplit = "unfused";
// Score memory for tiles of one row of each group, of some rows with a remainder, and of one group
// of heads.
constexpr std::int64_t kOneRow = 1, kSomeRows = 40'000, kOneGroup = 140'000;

struct Case {
  std::string dims;
  std::string clauses;
};

bool has_loops(const plan::Program& program) {
  return std::ranges::any_of(program.steps,
                             [](const plan::Step& step) { return plan::turns_of(step) > 1; });
}

void add_backward(Subject& subject, const char* lowering, std::int64_t score_bytes) {
  target::Rewrites made;
  made.score_bytes = score_bytes;
  auto forward = driver::lower(subject.attention, lowering, plan::Direction::forward);
  auto backward = driver::lower(subject.attention, lowering, plan::Direction::backward, made);
  ASSERT_TRUE(forward.ok()) << subject.text << forward.error().to_text();
  ASSERT_TRUE(backward.ok()) << subject.text << backward.error().to_text();
  const bool one_row = score_bytes == kOneRow && subject.attention.dims[ir::Dim::Sq] > 1;
  EXPECT_TRUE(has_loops(*backward) || !one_row) << subject.text;
  subject.pairs.push_back({fmt::format("{} by {} bytes", lowering, score_bytes),
                           std::move(*forward), std::move(*backward)});
}

void expect_reference_of(const std::vector<Case>& cases) {
  std::vector<Subject> subjects;
  for (const auto& [dims, clauses] : cases) {
    const std::string text =
        fmt::format("attention tiled {{ dtype f16; outputs o, lse; dims {}; {} }}", dims, clauses);
    Subject subject{text, attention_of(text), {}};
    for (const char* lowering : {kFused, kSplit}) {
      for (const std::int64_t bytes : {kOneRow, kSomeRows, kOneGroup}) {
        add_backward(subject, lowering, bytes);
      }
    }
    subjects.push_back(std::move(subject));
  }
  expect_reference(subjects);
}

// Tensors over each index and over several, added to or multiplied with the score.
TEST(HostTiles, OfTensorsByEveryIndex) {
  const std::string all = "grad q, k, v, t;";
  expect_reference_of({
      {kSizes, "learn t: f32[Hq]; score score + t[h] * (kv_idx - q_idx) / 50; " + all},
      {kSizes, "learn t: f32[B]; score score * t[b]; " + all},
      {kSizes, "learn t: f32[Sq]; score score + t[q_idx]; " + all},
      {kSizes, "learn t: f32[Skv]; score score + t[kv_idx]; " + all},
      {kSizes, "learn t: f16[Sq, Skv]; score score + t[q_idx, kv_idx]; " + all},
      {kSizes, "learn t: f32[B, Sq, Skv]; score score + t[b, q_idx, kv_idx] * h; " + all},
      {kSizes, "learn t: f32[Sq + Skv]; score score + t[q_idx - kv_idx + Skv - 1]; grad t;"},
  });
}

TEST(HostTiles, OfEverySize) {
  const std::string clauses =
      "learn t: f32[Hq, Sq]; score score + t[h, q_idx] * kv_idx / 100; grad q, k, v, t;";
  expect_reference_of({
      {"B = 1, Hq = 1, Hkv = 1, Sq = 1, Skv = 1, D = 8", clauses},
      {"B = 3, Hq = 4, Hkv = 2, Sq = 1, Skv = 33, D = 8", clauses},
      {"B = 1, Hq = 2, Hkv = 1, Sq = 7, Skv = 7, D = 8", clauses},
      {"B = 1, Hq = 10, Hkv = 2, Sq = 13, Skv = 129, D = 8", clauses},
      {"B = 1, Hq = 2, Hkv = 2, Sq = 129, Skv = 5, Dqk = 24, Dv = 8", clauses},
  });
}

TEST(HostTiles, OfManyRowsInFewTiles) {
  const std::string text =
      "attention tiled { dtype bf16; outputs o, lse; dims B = 1, Hq = 5, Hkv = 1, Sq = 259, "
      "Skv = 333, D = 8; learn t: f32[Hq]; score score + t[h] * (kv_idx - q_idx) / 150; "
      "mask q_idx >= kv_idx; grad q, k, v, t; }";
  Subject subject{text, attention_of(text), {}};
  add_backward(subject, kFused, 1'000'000);
  add_backward(subject, kSplit, 1'000'000);
  expect_reference({subject});
}

// Tiles of three of seven groups, with a remainder of one.
TEST(HostTiles, OfWholeGroups) {
  const std::string text =
      "attention tiled { dtype f16; outputs o, lse; dims B = 7, Hq = 3, Hkv = 1, Sq = 29, "
      "Skv = 37, D = 8; learn t: f32[B, Hq]; learn u: f32[Sq]; score score * t[b, h] + u[q_idx]; "
      "mask q_idx >= kv_idx - 10; grad q, k, v, t, u; }";
  Subject subject{text, attention_of(text), {}};
  add_backward(subject, kFused, 330'000);
  add_backward(subject, kSplit, 420'000);
  for (const Pair& pair : subject.pairs) EXPECT_TRUE(has_loops(*pair.backward)) << pair.lowering;
  expect_reference({subject});
}

// Rows without a visible key, segments, lengths, and packed rows.
TEST(HostTiles, BesideMasksAndLengths) {
  const std::string learned = "learn t: f32[Hq, 4]; score score + t[h, kv_idx % 4]; ";
  const std::string all = learned + "grad q, k, v, t; ";
  expect_reference_of({
      {kSizes, all + "mask kv_idx < q_idx - 9;"},
      {kSizes, all + "tensor doc: i32[B, Sq] = i1 // 11; mask doc[b, q_idx] == kv_idx // 11;"},
      {kSizes, all + "layout bshd; lengths kv;"},
      {kSizes, all + "layout bhsd; lengths q, kv; mask q_idx >= kv_idx;"},
      {"B = 3, Hq = 4, Hkv = 2, Sq = 40, Skv = 40, D = 16", all + "layout thd;"},
  });
}

TEST(HostTiles, BesideSinksAndDropout) {
  const std::string all = "grad q, k, v, t, s; ";
  expect_reference_of({
      {kSizes,
       "learn s: f32[Hq]; sink s[h]; learn t: f32[3, Hq];"
       "score 10 * tanh((score + t[q_idx % 3, h]) / 10); mask q_idx >= kv_idx; " +
           all},
      {kSizes,
       "learn s: f32[Hq]; learn t: f32[Hq]; sink s[h] + t[h]; score score + t[h] * kv_idx; " + all},
      {kSizes,
       "learn t: f32[Hq]; score score * t[h];"
       "dropout 0.25, (q_idx + kv_idx) % 4 != 0; grad q, k, v, t;"},
  });
}

// An element that no score reads has gradient 0.
TEST(HostTiles, OfTensorsThatNoScoreReads) {
  expect_reference_of({{kSizes,
                        "learn t: f32[Hq]; learn u: f32[Hq]; score score * t[h] + 0 * u[h];"
                        "grad q, t, u;"}});
}

}  // namespace
}  // namespace attn::host::tiles_tests
