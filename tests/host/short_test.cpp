// Runs the backward of one launch over few keys (compiler/device/attn/mma_short_backward.cuh), and
// the forward that walks items (mma_walking.cuh), on an emulated GPU, and compares outputs and
// gradients with the reference. Sizes take turns: copies that happen early and late, and tiles of
// an H200, an A100 and an L40S. Rows past the lengths are NaN.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/host/attention.h"
#include "tests/host/shapes_of_file.h"

namespace attn::host::short_tests {
namespace {

struct Sizes {
  int rows, keys, depth, query_heads, key_heads;
};

// All keys within a block: one, less than a tile's, a whole tile's, and rows that take several
// blocks of them.
constexpr Sizes kSizes[] = {{1, 1, 8, 3, 3},     {7, 7, 16, 5, 1},    {49, 49, 32, 3, 3},
                            {64, 64, 64, 2, 2},  {129, 49, 24, 5, 1}, {49, 77, 40, 2, 1},
                            {129, 77, 64, 5, 1}, {7, 128, 128, 2, 2}, {128, 128, 96, 2, 1},
                            {70, 64, 184, 2, 1}, {56, 96, 16, 4, 2}};

// Two multiprocessors: blocks of threads walk several heads. Of warp groups' GPU some, too.
target::Context context_of(plan::Direction direction, std::size_t turn) {
  constexpr std::int64_t kGpus[] = {90, 80, 89};
  target::Context context;
  context.direction = direction;
  context.rewrites.long_forms = false;
  context.rewrites.warp_groups = turn % 2 == 0;
  context.gpu.sm = kGpus[turn % std::size(kGpus)];
  context.gpu.multiprocessors = 2;
  return context;
}
gpu::Order order_of(std::size_t turn) {
  return turn % 2 == 0 ? gpu::Order::early_copies : gpu::Order::late_copies;
}
const char* text_of(gpu::Order order) {
  return order == gpu::Order::early_copies ? "early copies" : "late copies";
}

// Adds the pair of programs that a training runs, on the next GPU in turns.
void add(const std::string& text, std::size_t turn, std::vector<Subject>& subjects) {
  const auto attention = driver::training_forward(attention_of("attention f { " + text + " }"));
  const auto forward =
      driver::lower(attention, "native", context_of(plan::Direction::forward, turn));
  const auto backward =
      driver::lower(attention, "native", context_of(plan::Direction::backward, turn));
  ASSERT_TRUE(forward.ok()) << text << forward.error().to_text();
  ASSERT_TRUE(backward.ok()) << text << backward.error().to_text();
  const gpu::Order order = order_of(turn);
  subjects.push_back(
      {text, attention, {{text_of(order), *forward, *backward, order, tools::Unused::anything}}});
}

void add_forward(const std::string& text, std::size_t turn, std::vector<Subject>& subjects) {
  const auto attention = attention_of("attention f { " + text + " }");
  const auto forward =
      driver::lower(attention, "native", context_of(plan::Direction::forward, turn));
  ASSERT_TRUE(forward.ok()) << text << forward.error().to_text();
  // The last GPU has little shared memory.
  const bool fits = context_of(plan::Direction::forward, turn).gpu.sm != 89;
  const auto steps = plan::steps_of<plan::KernelStep>(*forward);
  if (fits) {
    EXPECT_NE(steps.back()->source.find("walking_forward"), std::string::npos) << text;
  }
  const gpu::Order order = order_of(turn);
  subjects.push_back(
      {text, attention, {{text_of(order), *forward, {}, order, tools::Unused::anything}}});
}

std::string dims_of(const Sizes& sizes, int batches) {
  return fmt::format("dims B = {}, Hq = {}, Hkv = {}, Sq = {}, Skv = {}, D = {}; ", batches,
                     sizes.query_heads, sizes.key_heads, sizes.rows, sizes.keys, sizes.depth);
}

// Every fourth of the sizes, from the number of the clauses on, or all.
void expect_reference_of(const char* clauses, int batches, Turns turns) {
  const std::size_t step = turns == Turns::one ? 4 : 1;
  std::vector<Subject> subjects;
  for (std::size_t i = turn_of(clauses) % step; i < std::size(kSizes); i += step) {
    add(dims_of(kSizes[i], batches) + clauses, i, subjects);
  }
  expect_reference(subjects);
}

class HostShort : public ::testing::TestWithParam<const char*> {};
TEST_P(HostShort, IsTheReference) { expect_reference_of(GetParam(), 4, Turns::one); }

class NightlyHostShort : public HostShort {};
TEST_P(NightlyHostShort, IsTheReference) { expect_reference_of(GetParam(), 4, Turns::all); }

constexpr const char* kClauses[] = {
    "outputs o, lse; grad q, k, v;",
    "dtype f16; lengths q, kv; outputs o, lse; grad q, k, v;",
    "mask q_idx + 3 >= kv_idx; deterministic; grad q, k, v, lse; outputs o, lse;",
    "tensor bias: bf16[Hq, Sq, Skv]; score score + bias[h, q_idx, kv_idx]; outputs o, lse; "
    "grad q, k, v;",
    "learn bias: bf16[Hq, Sq, Skv]; score score + bias[h, q_idx, kv_idx]; outputs o, lse; "
    "grad q, k, v, bias;",
    "learn bias: f32[Sq, Skv]; tensor group: i32[3, Skv] = i1 * 3 // Skv; "
    "score score + bias[q_idx, kv_idx]; deterministic; "
    "mask group[b % 3, kv_idx] != q_idx % 4; outputs o, lse; grad q, k, v, bias;",
    "learn bias: f32[B, Hq, Sq, Skv]; score score + bias[b, h, q_idx, kv_idx]; outputs o, lse; "
    "grad q, k, v, bias;",
    "learn near: f32[Hq, 5]; tensor place: i32[Sq, Skv] = (i0 * 7 + i1) % 5; "
    "score score + near[h, place[q_idx, kv_idx]]; outputs o, lse; grad q, k, v, near;",
    "learn far: f32[Hq, 11]; learn slope: f32[Hq]; "
    "score 20 * tanh(score / 20) * slope[h] + far[h, clamp(q_idx - kv_idx, -5, 5) + 5]; "
    "outputs o, lse; grad q, k, v, far, slope;",
    "dropout 0.2; outputs o, lse; grad q, k, v;",
    "dropout 0.3; mask q_idx + 40 >= kv_idx; outputs o, lse; grad q, k, v;",
    "learn sink: f32[Hq]; sink sink[h]; outputs o, lse; grad q, k, v, sink;",
    "weight sigmoid(score - 2); outputs o; grad q, k, v;",
    // Rows and keys that no list has, whose weights are not 0 by what the forward knows of rows.
    "mask q_idx >= 48; weight sigmoid(score - 2); outputs o; grad q, k, v;",
    "mask q_idx < 64; learn sink: f32[Hq]; sink sink[h]; outputs o, lse; grad q, k, v, sink;",
    "mask kv_idx >= 16; dropout 0.2; learn sink: f32[Hq]; sink sink[h]; outputs o, lse; "
    "grad q, k, v, sink;",
};
INSTANTIATE_TEST_SUITE_P(Clauses, HostShort, ::testing::ValuesIn(kClauses));
INSTANTIATE_TEST_SUITE_P(Clauses, NightlyHostShort, ::testing::ValuesIn(kClauses));

// Forwards that walk items: tables that these have in common, whose rows begin anywhere or not; one
// block of keys, or several; one block of rows, or several.
void expect_walking(Turns turns) {
  constexpr Sizes kWalked[] = {{1, 7, 8, 3, 3},     {49, 49, 32, 3, 3},  {129, 200, 16, 2, 2},
                               {300, 64, 64, 1, 1}, {65, 384, 32, 2, 2}, {64, 131, 40, 2, 2}};
  constexpr const char* kWalkedClauses[] = {
      "tensor bias: bf16[Hq, Sq, Skv]; score score + bias[h, q_idx, kv_idx]; outputs o, lse;",
      "dtype f16; lengths q, kv; tensor bias: f16[Sq, Skv]; score 2 * score - bias[q_idx, kv_idx]; "
      "outputs o, lse;",
      "layout thd; lengths q, kv; tensor bias: f16[Hq, Sq, Skv]; "
      "score score + bias[h, q_idx, kv_idx]; outputs o, lse;",
      "tensor bias: bf16[Hq, Sq, Skv]; tensor seen: i32[3, Skv] = (i0 + 2 * i1) % 4; "
      "score 30 * tanh((score + bias[h, q_idx, kv_idx]) / 30); mask seen[b % 3, kv_idx] > 0; "
      "outputs o, lse;",
      "tensor bias: bf16[Hq, Sq, Skv]; score score + bias[h, q_idx, kv_idx]; dropout 0.2; "
      "outputs o, lse;"};
  std::vector<Subject> subjects;
  std::size_t turn = 0;
  for (const Sizes& sizes : kWalked) {
    for (const char* clauses : kWalkedClauses) {
      // Each size with some clauses, and each clause with two sizes.
      const bool taken = turns == Turns::all || turn % 3 == turn / std::size(kWalkedClauses) % 3;
      if (taken) add_forward(dims_of(sizes, 5) + clauses, turn, subjects);
      ++turn;
    }
  }
  expect_reference(subjects);
}
TEST(HostWalking, IsTheReference) { expect_walking(Turns::one); }
TEST(NightlyHostWalking, IsTheReference) { expect_walking(Turns::all); }

// Packed sequences, of which some are empty.
constexpr const char* kPacked = "layout thd; lengths q, kv; outputs o, lse; grad q, k, v;";
TEST(HostShortPacked, IsTheReference) { expect_reference_of(kPacked, 5, Turns::one); }
TEST(NightlyHostShortPacked, IsTheReference) { expect_reference_of(kPacked, 5, Turns::all); }

// Gradients that are not asked for are not made.
TEST(HostShortGradients, AreThoseOfTheSpec) {
  std::vector<Subject> subjects;
  for (const char* gradients : {"q", "k", "v", "k, v", "q, v"}) {
    add(dims_of(kSizes[4], 3) + fmt::format("outputs o, lse; grad {};", gradients), subjects.size(),
        subjects);
  }
  expect_reference(subjects);
}

}  // namespace
}  // namespace attn::host::short_tests
