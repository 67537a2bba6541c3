// The program of every shipped spec.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/driver/driver.h"
#include "tests/golden/lowering/specs.h"
#include "tests/support/contexts.h"
#include "tests/support/golden.h"
#include "tests/unit/runtime/plan/program_text.h"

namespace attn::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LoweringGolden : public ::testing::TestWithParam<std::filesystem::path> {};

// The specs that lower to a program, or those that do not (tests/conformance/not_lowered.txt).
std::vector<std::filesystem::path> specs(bool lowered) {
  const std::set<std::string> refused = not_lowered();
  std::vector<std::filesystem::path> files = spec_files("specs");
  std::erase_if(
      files, [&](const auto& file) { return refused.contains(file.stem().string()) == lowered; });
  return files;
}

TEST_P(LoweringGolden, Program) {
  const plan::Program program = lowered_spec(GetParam());
  ASSERT_FALSE(program.steps.empty());
  expect_golden("tests/golden/lowering/" + GetParam().stem().string() + ".expected",
                plan::to_text(program));
}

TEST_P(LoweringGolden, LoweringAgainGivesTheSameProgram) {
  EXPECT_EQ(plan::canonical_text(lowered_spec(GetParam())),
            plan::canonical_text(lowered_spec(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Specs, LoweringGolden, ::testing::ValuesIn(specs(true)),
                         [](const auto& spec) { return spec.param.stem().string(); });

// Layouts, lengths, outputs, sinks and dropout, alone and combined, including refused specs.
class SurfaceLowering : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(SurfaceLowering, Program) {
  const auto program = try_lower(GetParam());
  expect_golden("tests/golden/lowering/surface/" + GetParam().stem().string() + ".expected",
                program.ok() ? plan::to_text(*program) : program.error().to_text() + "\n");
}

INSTANTIATE_TEST_SUITE_P(Specs, SurfaceLowering,
                         ::testing::ValuesIn(spec_files("tests/gpu/surface")),
                         [](const auto& spec) { return spec.param.stem().string(); });

// 8-bit attention: types, layouts, copies, lengths, outputs that are not listed.
class LoweringIn8Bits : public ::testing::TestWithParam<const char*> {};

TEST_P(LoweringIn8Bits, Program) {
  const std::filesystem::path spec = GetParam();
  const bool trains = spec.parent_path().stem() == "fp8_training";
  const auto program = try_lower(std::filesystem::path(ATTN_SOURCE_DIR) / spec, "composite",
                                 trains ? plan::Direction::backward : plan::Direction::forward);
  expect_golden("tests/golden/lowering/" + spec.parent_path().stem().string() + "/" +
                    spec.stem().string() + ".expected",
                program.ok() ? plan::to_text(*program) : program.error().to_text() + "\n");
}

INSTANTIATE_TEST_SUITE_P(
    Specs, LoweringIn8Bits,
    ::testing::Values("tests/gpu/fp8/causal.attn", "tests/gpu/fp8/depth_72.attn",
                      "tests/gpu/fp8/amax_unlisted.attn", "tests/gpu/fp8/padding.attn",
                      "tests/gpu/fp8/dropout.attn", "tests/gpu/fp8/o_bf16.attn",
                      "tests/gpu/fp8_training/heads.attn", "tests/gpu/fp8_training/hybrid.attn",
                      "tests/gpu/fp8_training/padding.attn",
                      "tests/gpu/fp8_training/depth_64.attn"),
    [](const auto& spec) {
      const std::filesystem::path path = spec.param;
      return path.parent_path().stem().string() + "_" + path.stem().string();
    });

// Scales of blocks, for a B200: both directions, copies in their layouts, shared keys, and what is
// refused.
class LoweringInBlocks : public ::testing::TestWithParam<const char*> {};

TEST_P(LoweringInBlocks, Programs) {
  const std::filesystem::path spec = std::filesystem::path(ATTN_SOURCE_DIR) / "tests/gpu/mxfp8" /
                                     (std::string(GetParam()) + ".attn");
  const support::Source source = support::Source::read(spec.string()).value();
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, {}, sink);
  ASSERT_TRUE(attention.has_value()) << diag::to_text(sink);
  for (const auto direction : {plan::Direction::forward, plan::Direction::backward}) {
    if (direction == plan::Direction::backward && attention->gradients.empty()) continue;
    target::Context context = in(direction == plan::Direction::backward);
    context.gpu.sm = 100;
    const auto program = driver::lower(*attention, "composite", context);
    expect_golden(fmt::format("tests/golden/lowering/mxfp8/{}_{}.expected", GetParam(),
                              plan::to_string(direction)),
                  program.ok() ? plan::to_text(*program) : program.error().to_text() + "\n");
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, LoweringInBlocks,
                         ::testing::Values("causal", "depth_256", "e5m2", "padding", "softcap",
                                           "window"),
                         [](const auto& name) { return std::string(name.param); });

// What a plan's signature is made of tells the ways to scale apart, where all else is the same.
TEST(LoweredIn8Bits, ScalesOfBlocksAreNotThoseOfTensors) {
  const auto text_of = [](const std::string& way) {
    const support::Source source("spec.attn",
                                 "attention a { dims B = 1, Hq = 2, Sq = 128, D = 128; dtype e4m3; "
                                 "quantize " +
                                     way + ", o: bf16; layout bhsd; outputs o, lse; }");
    diag::Sink sink(source);
    const auto attention = driver::front_end(source, {}, sink);
    EXPECT_TRUE(attention.has_value()) << diag::to_text(sink);
    target::Context context = in(false);
    context.gpu.sm = 100;
    return plan::canonical_text(driver::lower(*attention, "composite", context).value());
  };
  const std::string tensors = text_of("per_tensor"), blocks = text_of("mxfp8");
  EXPECT_NE(tensors, blocks);
  EXPECT_THAT(tensors, Not(HasSubstr("e8m0")));
  EXPECT_THAT(blocks, HasSubstr("e8m0"));
}

// The backward with one fused kernel: masks, shared keys, derivatives, lengths, dropout, learned
// tensors, copies, vectors, partial last tiles, and the deterministic form.
class BackwardLowering : public ::testing::TestWithParam<const char*> {};

TEST_P(BackwardLowering, Program) {
  const std::filesystem::path spec = GetParam();
  const auto program = try_lower(std::filesystem::path(ATTN_SOURCE_DIR) / spec, "composite",
                                 plan::Direction::backward);
  expect_golden("tests/golden/lowering/backward/" + spec.stem().string() + ".expected",
                program.ok() ? plan::to_text(*program) : program.error().to_text() + "\n");
}

INSTANTIATE_TEST_SUITE_P(
    Specs, BackwardLowering,
    ::testing::Values("specs/noop.attn", "specs/causal.attn", "specs/sliding_window.attn",
                      "specs/gqa_5to1.attn", "specs/softcap.attn", "specs/padding.attn",
                      "specs/thd.attn", "specs/dropout_causal.attn", "specs/dropout_mask.attn",
                      "specs/gpt_oss.attn", "specs/t5_bias.attn", "specs/head_dim_100.attn",
                      "specs/document.attn", "specs/alibi_slopes.attn", "specs/paged_decode.attn",
                      "specs/learned_bias_qk.attn", "specs/merge_by_lse.attn",
                      "tests/gpu/forms/squared.attn", "tests/gpu/surface/no_keys_sink.attn",
                      "tests/golden/lowering/backward/deterministic.attn"),
    [](const auto& spec) { return std::filesystem::path(spec.param).stem().string(); });

// Segments as ragged sequences, forward and backward: with a bounded number of segments, and also
// with bounded lengths.
class DocumentsLowering : public ::testing::TestWithParam<const char*> {};

TEST_P(DocumentsLowering, Programs) {
  const std::filesystem::path spec = std::filesystem::path(ATTN_SOURCE_DIR) / GetParam();
  for (const auto direction : {plan::Direction::forward, plan::Direction::backward}) {
    const auto program = try_lower(spec, "segments", direction);
    expect_golden(fmt::format("tests/golden/lowering/segments/{}_{}.expected", spec.stem().string(),
                              plan::to_string(direction)),
                  program.ok() ? plan::to_text(*program) : program.error().to_text() + "\n");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Specs, DocumentsLowering,
    ::testing::Values("specs/document.attn", "bench/variants/document_causal.attn",
                      "specs/document_padded.attn", "tests/gpu/segments/bounded.attn"),
    [](const auto& spec) { return std::filesystem::path(spec.param).stem().string(); });

// Lists of pages: static or computed at every execute, with copies, and with a remaining mask.
class PagesLowering : public ::testing::TestWithParam<const char*> {};

TEST_P(PagesLowering, Program) {
  const std::string name = GetParam();
  const auto program = try_lower(
      std::filesystem::path(ATTN_SOURCE_DIR) / "tests/gpu/block_sparse" / (name + ".attn"),
      "block_sparse");
  expect_golden("tests/golden/lowering/block_sparse/" + name + ".expected",
                program.ok() ? plan::to_text(*program) : program.error().to_text() + "\n");
}

INSTANTIATE_TEST_SUITE_P(Specs, PagesLowering,
                         ::testing::Values("map", "map_by_head", "positions", "rows_first",
                                           "top_tiles"),
                         [](const auto& name) { return std::string(name.param); });

// Masks as lengths, forward and backward.
class LengthsLowering : public ::testing::TestWithParam<const char*> {};

TEST_P(LengthsLowering, Programs) {
  const std::filesystem::path spec =
      std::filesystem::path(ATTN_SOURCE_DIR) / "tests/gpu/seqlens" / GetParam();
  for (const auto direction : {plan::Direction::forward, plan::Direction::backward}) {
    const auto program = try_lower(spec, "seqlens", direction);
    ASSERT_TRUE(program.ok()) << program.error().to_text();
    expect_golden(fmt::format("tests/golden/lowering/seqlens/{}_{}.expected", spec.stem().string(),
                              plan::to_string(direction)),
                  plan::to_text(*program));
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, LengthsLowering,
                         ::testing::Values("padded.attn", "padded_keys.attn", "aligned.attn",
                                           "beside_sink.attn"),
                         [](const auto& spec) {
                           return std::filesystem::path(spec.param).stem().string();
                         });

// Without a fused kernel: features that no fused kernel supports, and all kinds of layouts and
// tensors.
class SplitLowering : public ::testing::TestWithParam<const char*> {};

TEST_P(SplitLowering, Program) {
  const std::string name = GetParam();
  const auto program = try_lower(
      std::filesystem::path(ATTN_SOURCE_DIR) / "tests/gpu/surface" / (name + ".attn"), "unfused");
  expect_golden("tests/golden/lowering/unfused/" + name + ".expected",
                program.ok() ? plan::to_text(*program) : program.error().to_text() + "\n");
}

INSTANTIATE_TEST_SUITE_P(Surface, SplitLowering,
                         ::testing::Values("dropout", "dropout_keep_padding", "paged_two_tables",
                                           "sigmoid", "sink_all_outputs", "thd_gather",
                                           "thd_head_dim_100"),
                         [](const auto& name) { return std::string(name.param); });

// The unfused backward: tensors learned through scores and sinks, and gradients that are not asked
// for.
class SplitBackward : public ::testing::TestWithParam<const char*> {};

TEST_P(SplitBackward, Program) {
  const std::filesystem::path spec = GetParam();
  const auto program = try_lower(std::filesystem::path(ATTN_SOURCE_DIR) / spec, "unfused",
                                 plan::Direction::backward);
  expect_golden("tests/golden/lowering/unfused/backward_" + spec.stem().string() + ".expected",
                program.ok() ? plan::to_text(*program) : program.error().to_text() + "\n");
}

INSTANTIATE_TEST_SUITE_P(
    Specs, SplitBackward,
    ::testing::Values("specs/t5_bias.attn", "specs/learned_bias_qk.attn",
                      "tests/gpu/surface/dropout_keep_padding.attn",
                      "tests/gpu/surface/no_keys_sink.attn", "tests/gpu/surface/paged_odd.attn",
                      "tests/gpu/surface/sigmoid.attn", "tests/gpu/surface/thd_head_dim_100.attn"),
    [](const auto& spec) { return std::filesystem::path(spec.param).stem().string(); });

TEST(SplitLoweringOfAll, RefusesNoGradientButThoseOfPagesToo) {
  for (const char* folder :
       {"specs", "tests/gpu/surface", "tests/gpu/derived", "tests/gpu/forms"}) {
    for (const auto& file : spec_files(folder)) {
      const auto program = try_lower(file, "unfused", plan::Direction::backward);
      if (program.ok()) continue;
      EXPECT_THAT(program.error().message,
                  AnyOf(HasSubstr("dropout"), HasSubstr("of memory, and the limit is"),
                        HasSubstr("is paged"), HasSubstr("overlap in memory"), HasSubstr("8-bit"),
                        HasSubstr("weights over a sum"), HasSubstr("no epilogue"),
                        HasSubstr("combine no branches"), HasSubstr("no gradients")))
          << file;
    }
  }
}

TEST(SplitLoweringOfAll, RefusesNothingButRandomDropoutSizeAndNoKeys) {
  for (const char* folder :
       {"specs", "tests/gpu/surface", "tests/gpu/derived", "tests/gpu/forms"}) {
    for (const auto& file : spec_files(folder)) {
      const auto program = try_lower(file, "unfused");
      if (program.ok()) continue;
      EXPECT_THAT(program.error().message,
                  AnyOf(HasSubstr("dropout"), HasSubstr("of memory, and the limit is"),
                        HasSubstr("without keys"), HasSubstr("8-bit"),
                        HasSubstr("weights over a sum"), HasSubstr("no epilogue"),
                        HasSubstr("combine no branches"), HasSubstr("only attnc's own kernels")))
          << file;
    }
  }
}

TEST(NotLowered, IsRefusedInWords) {
  for (const auto& file : specs(false)) {
    const auto program = try_lower(file);
    ASSERT_FALSE(program.ok()) << file
                               << " lowers: remove it from tests/conformance/not_lowered.txt";
    EXPECT_EQ(program.error().code, ErrorCode::unsupported) << program.error().to_text();
  }
}

TEST(NotLowered, AreSpecs) { EXPECT_EQ(specs(false).size(), not_lowered().size()); }

}  // namespace
}  // namespace attn::testing
