// Runs the backward of kernels of warps (compiler/device/attn/mma_backward.cuh) on an emulated GPU,
// behind a forward of them, and compares outputs and gradients with the reference. Sizes take
// turns: copies that happen early and late, and tiles and instructions of an H200, an A100 and an
// L40S. Rows past the lengths are NaN.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/host/attention.h"
#include "tests/host/shapes_of_file.h"

namespace attn::host::warps_training_tests {
namespace {

constexpr std::int64_t kLongest = 300;  // rows and columns: several tiles and blocks

// What backwards have that kernels of warps compute in a way of their own, or share with others.
constexpr const char* kSpecs[] = {"specs/alphafold_gated.attn",
                                  "specs/bias_head.attn",
                                  "specs/causal.attn",
                                  "specs/dilated_window.attn",
                                  "specs/document_causal.attn",
                                  "specs/dropout_causal.attn",
                                  "specs/dropout_mask.attn",
                                  "specs/fox.attn",
                                  "specs/gqa_5to1.attn",
                                  "specs/head_dim_80.attn",
                                  "specs/padding.attn",
                                  "specs/sigmoid_causal.attn",
                                  "specs/softcap.attn",
                                  "specs/qk_norm.attn",
                                  "tests/gpu/native/backward_bias.attn",
                                  "tests/gpu/native/backward_bias_own.attn",
                                  "tests/gpu/native/backward_depth_256.attn",
                                  "tests/gpu/native/backward_divided_heads.attn",
                                  "tests/gpu/native/backward_dropout_lengths.attn",
                                  "tests/gpu/native/backward_divided_lists.attn",
                                  "tests/gpu/native/backward_divided_turns.attn",
                                  "tests/gpu/native/backward_gather.attn",
                                  "tests/gpu/native/backward_learned.attn",
                                  "tests/gpu/native/backward_learned_rest.attn",
                                  "tests/gpu/native/backward_learned_thd.attn",
                                  "tests/gpu/native/backward_loops.attn",
                                  "tests/gpu/native/backward_lse.attn",
                                  "tests/gpu/native/backward_lse_shared.attn",
                                  "tests/gpu/native/backward_pages.attn",
                                  "tests/gpu/native/backward_prologue.attn",
                                  "tests/gpu/native/backward_sigmoid_learned.attn",
                                  "tests/gpu/native/backward_splits.attn",
                                  "tests/gpu/native/backward_sums.attn",
                                  "tests/gpu/native/backward_tables.attn",
                                  "tests/gpu/native/backward_thd.attn",
                                  "tests/gpu/native/backward_thd_of_keys.attn",
                                  "tests/gpu/native/backward_wide.attn",
                                  "tests/gpu/native/backward_widths.attn",
                                  "tests/gpu/native/backward_widths_24_200.attn",
                                  "tests/gpu/native/band_divided.attn",
                                  "tests/gpu/native/band_prefixes.attn",
                                  "tests/gpu/native/band_thd.attn",
                                  "tests/gpu/native/branches_sparse.attn",
                                  "tests/gpu/native/deterministic.attn",
                                  "tests/gpu/native/epilogue_gate.attn",
                                  "tests/gpu/native/epilogue_learned.attn",
                                  "tests/gpu/native/epilogue_lists.attn"};

// Adds the pair of programs that a training runs, on the next GPU in turns.
void add(const std::string& text, const ir::Attention& attention, std::size_t turn,
         std::vector<Subject>& subjects) {
  constexpr std::int64_t kGpus[] = {80, 90, 89};
  target::Context forward, backward;
  forward.direction = plan::Direction::forward, backward.direction = plan::Direction::backward;
  for (target::Context* context : {&forward, &backward}) {
    context->rewrites.warp_groups = false;
    context->rewrites.short_forms = turn % 2 == 1;
    context->gpu.sm = kGpus[turn % std::size(kGpus)];
  }
  Subject subject{
      fmt::format("{}, sm_{}", text, forward.gpu.sm), driver::training_forward(attention), {}};
  const auto of_forward = driver::lower(subject.attention, "native", forward);
  const auto of_backward = driver::lower(subject.attention, "native", backward);
  ASSERT_TRUE(of_forward.ok()) << of_forward.error().to_text();
  ASSERT_TRUE(of_backward.ok()) << of_backward.error().to_text();
  const bool early = turn % 2 == 0;
  subject.pairs.push_back({early ? "early copies" : "late copies", *of_forward, *of_backward,
                           early ? gpu::Order::early_copies : gpu::Order::late_copies,
                           tools::Unused::anything});
  subjects.push_back(std::move(subject));
}

void expect_reference_of(const char* spec, Turns turns) {
  std::vector<Subject> subjects;
  for_each_shape(ATTN_SOURCE_DIR "/" + std::string(spec), kLongest, "scaled", turns,
                 [&](const std::string& text, const ir::Attention& attention, std::size_t turn) {
                   add(text, attention, turn, subjects);
                 });
  ASSERT_FALSE(subjects.empty());
  expect_reference(subjects);
}

class HostWarpsTraining : public ::testing::TestWithParam<const char*> {};
TEST_P(HostWarpsTraining, IsTheReference) { expect_reference_of(GetParam(), Turns::one); }

class NightlyHostWarpsTraining : public HostWarpsTraining {};
TEST_P(NightlyHostWarpsTraining, IsTheReference) { expect_reference_of(GetParam(), Turns::all); }

// Rows that see nothing, batches without keys, and sizes that end within a tile and a block.
void expect_sizes(Turns turns) {
  std::vector<Subject> subjects;
  std::size_t turn = 0;
  for (const auto& [rows, keys, depth] : {std::tuple(1, 1, 8),
                                          {7, 129, 24},
                                          {129, 7, 64},
                                          {1, 333, 128},
                                          {177, 201, 40},
                                          {70, 90, 184}}) {
    const std::string sizes =
        fmt::format("dims B = 3, Hq = 5, Hkv = 1, Sq = {}, Skv = {}, D = {}; ", rows, keys, depth);
    for (const char* clauses :
         {"lengths q, kv; outputs o, lse;",
          "dtype f16; mask q_idx > kv_idx + 3; deterministic; outputs o, lse;"}) {
      // One of the two clauses, in turns.
      const bool taken = turns == Turns::all || turn % 4 == 0 || turn % 4 == 3;
      const ir::Attention attention = attention_of("attention f { " + sizes + clauses + " }");
      if (taken) add(sizes + clauses, attention, turn, subjects);
      ++turn;
    }
  }
  EXPECT_EQ(subjects.size(), turns == Turns::all ? 12U : 6U);
  expect_reference(subjects);
}
TEST(HostWarpsTrainingSizes, AreTheReference) { expect_sizes(Turns::one); }
TEST(NightlyHostWarpsTrainingSizes, AreTheReference) { expect_sizes(Turns::all); }

std::string name_of(const ::testing::TestParamInfo<const char*>& file) {
  return std::filesystem::path(file.param).stem().string();
}
INSTANTIATE_TEST_SUITE_P(Specs, HostWarpsTraining, ::testing::ValuesIn(kSpecs), name_of);
INSTANTIATE_TEST_SUITE_P(Specs, NightlyHostWarpsTraining, ::testing::ValuesIn(kSpecs), name_of);

}  // namespace
}  // namespace attn::host::warps_training_tests
