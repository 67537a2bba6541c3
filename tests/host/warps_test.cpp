// Runs kernels of warps (compiler/device/attn/mma_forward.cuh) on an emulated GPU, and compares
// their outputs with the reference. Sizes take turns: copies that happen early and late, and tiles
// for the shared memory of an H200 (two stages) and of an A100 (one).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/host/attention.h"
#include "tests/host/shapes_of_file.h"

namespace attn::host::warps_tests {
namespace {

constexpr std::int64_t kLongest = 300;  // rows and columns: several tiles and blocks

// What specs have that kernels of warps compute in a way of their own, or share with others.
constexpr const char* kSpecs[] = {"specs/alphafold_gated.attn",
                                  "specs/bias_head.attn",
                                  "specs/causal.attn",
                                  "specs/decode_gqa.attn",
                                  "specs/dilated_window.attn",
                                  "specs/document_causal.attn",
                                  "specs/dropout_causal.attn",
                                  "specs/dropout_mask.attn",
                                  "specs/gpt_oss.attn",
                                  "specs/gqa_5to1.attn",
                                  "specs/head_dim_80.attn",
                                  "specs/hstu.attn",
                                  "specs/mla_prefill.attn",
                                  "specs/padding.attn",
                                  "specs/paged_decode.attn",
                                  "specs/sigmoid_causal.attn",
                                  "tests/gpu/native/band_thd.attn",
                                  "tests/gpu/native/dropout_depth_256.attn",
                                  "tests/gpu/native/dropout_lengths.attn",
                                  "tests/gpu/native/epilogue_parts.attn",
                                  "tests/gpu/native/latent_dense.attn",
                                  "tests/gpu/native/latent_thd.attn",
                                  "tests/gpu/native/loops.attn",
                                  "tests/gpu/native/pages_12.attn",
                                  "tests/gpu/native/pages_of_two_sizes.attn",
                                  "tests/gpu/native/softpick.attn",
                                  "tests/gpu/native/split_sink.attn",
                                  "tests/gpu/native/strided_output.attn",
                                  "tests/gpu/native/table_by_batch.attn",
                                  "tests/gpu/native/thd_bottom_right.attn"};

// Adds the attention on the next GPU in turns, unless its kernels refuse it.
void add(const std::string& text, const ir::Attention& attention, std::size_t turn,
         std::vector<Subject>& subjects) {
  target::Context context;
  context.rewrites.warp_groups = false;
  context.rewrites.short_forms = turn % 2 == 1;
  if (turn / 2 % 2 == 1) context.gpu.sm = 80;
  const auto forward = driver::lower(attention, "native", context);
  if (!forward.ok()) return;
  const bool early = turn % 2 == 0;
  Subject subject{fmt::format("{}, sm_{}", text, context.gpu.sm), attention, {}};
  subject.pairs.push_back({early ? "early copies" : "late copies",
                           *forward,
                           {},
                           early ? gpu::Order::early_copies : gpu::Order::late_copies,
                           tools::Unused::anything});
  subjects.push_back(std::move(subject));
}

void expect_reference_of(const char* spec, Turns turns) {
  std::vector<Subject> subjects;
  for_each_shape(ATTN_SOURCE_DIR "/" + std::string(spec), kLongest, "", turns,
                 [&](const std::string& text, const ir::Attention& attention, std::size_t turn) {
                   add(text, attention, turn, subjects);
                 });
  ASSERT_FALSE(subjects.empty()) << "the engine refuses it";
  expect_reference(subjects);
}

class HostWarps : public ::testing::TestWithParam<const char*> {};
TEST_P(HostWarps, AreTheReference) { expect_reference_of(GetParam(), Turns::one); }

class NightlyHostWarps : public HostWarps {};
TEST_P(NightlyHostWarps, AreTheReference) { expect_reference_of(GetParam(), Turns::all); }

// Rows that see nothing, batches without keys, and sizes that end within a tile and a block.
void expect_sizes(Turns turns) {
  std::vector<Subject> subjects;
  std::size_t turn = 0;
  for (const auto& [rows, keys, depth] :
       {std::tuple(1, 1, 8), {7, 129, 24}, {129, 7, 64}, {1, 1001, 128}, {777, 1001, 40}}) {
    const std::string sizes =
        fmt::format("dims B = 3, Hq = 5, Hkv = 1, Sq = {}, Skv = {}, D = {}; ", rows, keys, depth);
    for (const char* clauses : {"lengths q, kv; outputs o, lse, max, sum_exp;",
                                "dtype f16; mask q_idx > kv_idx + 3; outputs o, lse;"}) {
      // One of the two clauses, in turns.
      const bool taken = turns == Turns::all || turn % 4 == 0 || turn % 4 == 3;
      const ir::Attention attention = attention_of("attention f { " + sizes + clauses + " }");
      if (taken) add(sizes + clauses, attention, turn, subjects);
      ++turn;
    }
  }
  EXPECT_EQ(subjects.size(), turns == Turns::all ? 10U : 5U);
  expect_reference(subjects);
}
TEST(HostWarpsSizes, AreTheReference) { expect_sizes(Turns::one); }
TEST(NightlyHostWarpsSizes, AreTheReference) { expect_sizes(Turns::all); }

std::string name_of(const ::testing::TestParamInfo<const char*>& file) {
  return std::filesystem::path(file.param).stem().string();
}
INSTANTIATE_TEST_SUITE_P(Specs, HostWarps, ::testing::ValuesIn(kSpecs), name_of);
INSTANTIATE_TEST_SUITE_P(Specs, NightlyHostWarps, ::testing::ValuesIn(kSpecs), name_of);

}  // namespace
}  // namespace attn::host::warps_tests
