#include "compiler/engines/native/programs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "compiler/engines/native/kernel.h"
#include "compiler/engines/native/tiles.h"
#include "compiler/nvrtc/nvrtc.h"
#include "tests/support/golden.h"
#include "tests/unit/compiler/engines/native/lowered.h"

namespace attn::engines::programs_tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kSizes;
using testing::lowered;
using testing::map_of;
using ::testing::Not;
using testing::of;
using testing::refusal;
using testing::source_of;
using testing::step_of;

TEST(Native, IsOneKernelStep) {
  const NativeProgram made = lowered(std::string(kSizes) + "outputs o, lse;").value();
  ASSERT_EQ(made.program.steps.size(), 1U);
  const plan::KernelStep& step = step_of(made);
  EXPECT_THAT(step.outputs, ::testing::ElementsAre("o", "lse"));
  ASSERT_EQ(step.launches.size(), 1U);
  EXPECT_EQ(step.launches[0].block[0], 512);
  EXPECT_LE(step.launches[0].shared_bytes, 227 << 10);
  EXPECT_EQ(step.launches[0].grid[0], 2 * 2 * 7);  // units of 4 heads, tiles of 48 rows
}

TEST(Native, ListsAreMadeByTheGpuWhereTensorsDecide) {
  const NativeProgram made =
      lowered(std::string(kSizes) +
              "tensor d: i32[B, Skv]; mask d[b, kv_idx] == d[b, q_idx] && q_idx >= kv_idx;")
          .value();
  const plan::KernelStep& step = step_of(made);
  ASSERT_EQ(step.launches.size(), 2U);
  EXPECT_EQ(step.launches[0].kernel, "attn_lists");
  EXPECT_EQ(step.launches[0].grid[0], 2 * 10);  // lists, tiles of 32 rows
  EXPECT_EQ(step.launches[0].shared_bytes, 10 * 4);
  EXPECT_EQ(step.launches[1].kernel, "attn_forward");
  EXPECT_TRUE(step.launches[1].overlaps);
  EXPECT_EQ(step_of(*lowered(std::string(kSizes) + "tensor t: f32[Hq]; score score * t[h]; "
                                                   "mask q_idx >= kv_idx;"))
                .launches.size(),
            1U);
}

TEST(Native, BlocksOfKeysFitWindowsAndShortSequences) {
  const std::string window =
      "dims B = 1, Hq = 64, Hkv = 8, Sq = 8192, Skv = 8192, D = 64; "
      "mask 0 <= q_idx - kv_idx < 128;";
  EXPECT_THAT(source_of(window), HasSubstr("kKeys = 144;"));
  EXPECT_THAT(source_of("dims B = 64, Hq = 12, Hkv = 12, Sq = 197, Skv = 197, D = 64;"),
              HasSubstr("kKeys = 208;"));
  const std::string sizes = "dims B = 4, Hq = 8, Hkv = 8, Sq = 4096, Skv = 4096, D = 64; ";
  EXPECT_THAT(source_of(sizes), HasSubstr("kKeys = 128;"));
  // How many keys a tile sees is not known.
  for (const char* clauses : {"tensor d: i32[B, Skv]; mask d[b, q_idx] == d[b, kv_idx];",
                              "layout thd;", "lengths kv; layout paged(page = 64);"}) {
    EXPECT_THAT(source_of(sizes + clauses), HasSubstr("kKeys = 128;")) << clauses;
  }
}

TEST(Native, ItemsAreCountedWhereBlocksOfThreadsTakeSeveral) {
  const auto counts = [](const std::string& clauses) {
    const plan::Program program = lowered(clauses)->program;
    return std::ranges::count(program.internals, "native.counter", &plan::TensorInfo::name);
  };
  const std::string one = "Sq = 192, Skv = 500, D = 128; ";  // tile of a head
  EXPECT_EQ(counts("dims B = 1, Hq = 132, Hkv = 132, " + one), 0);
  EXPECT_EQ(counts("dims B = 1, Hq = 133, Hkv = 133, " + one), 1);
  EXPECT_EQ(counts("dims B = 1, Hq = 8, Hkv = 8, " + one + "dropout 0.1;"), 1);
  EXPECT_EQ(counts("dims B = 1, Hq = 8, Hkv = 8, Sq = 1, Skv = 65536, D = 128;"), 1) << "parts";
}

// A block whose masks of tensors show all of it reads none.
TEST(Native, MasksThatReadNoTensorsAreAlsoByThemselves) {
  const auto text = [](const std::string& masks) {
    return source_of(std::string(kSizes) + "tensor d: i32[Skv]; tensor x: f32[Skv]; " + masks);
  };
  const std::string both = text("mask d[kv_idx] == d[q_idx] && q_idx >= kv_idx;");
  EXPECT_THAT(both, HasSubstr("kMasksByIndices = true;"));
  EXPECT_THAT(both, HasSubstr("bool mask_by_indices(int b, int h, int row, int column) const {\n"
                              "    const bool v2 = row >= column;\n    return v2;"));
  EXPECT_THAT(both, HasSubstr("Interval visible_by_tensors("));
  EXPECT_THAT(text("mask d[kv_idx] == d[q_idx];"), HasSubstr("kMasksByIndices = false;"));
  EXPECT_THAT(text("mask x[kv_idx] > 0.5 * q_idx; mask q_idx >= kv_idx;"),
              HasSubstr("kMasksByIndices = false;"))
      << "lists do not tell them apart";
}

TEST(Native, FewRowsTakeOneWarpGroup) {
  const auto threads = [](const std::string& rows) {
    const NativeProgram made =
        lowered("dims B = 4, Hq = 32, Hkv = 8, Skv = 8192, D = 128, Sq = " + rows + ";").value();
    return step_of(made).launches[0].block[0];
  };
  EXPECT_EQ(threads("1"), 128 + 128);
  EXPECT_EQ(threads("16"), 128 + 128);
  EXPECT_EQ(threads("32"), 128 + 256);
  EXPECT_EQ(threads("4096"), 128 + 384);
}

// On 132 multiprocessors.
TEST(Native, FewTilesAreComputedInParts) {
  const auto grid = [](const std::string& clauses) {
    const NativeProgram made =
        lowered("dims Hq = 32, Hkv = 8, Sq = 1, D = 128; dims " + clauses).value();
    return step_of(made).launches[0].grid[0];
  };
  EXPECT_EQ(grid("B = 4, Skv = 8192;"), 4 * 8 * 4);
  EXPECT_EQ(grid("B = 1, Skv = 8192;"), 1 * 8 * 16);
  EXPECT_EQ(grid("B = 1, Skv = 2048;"), 1 * 8 * 8);  // of 2 blocks of 128 keys
  EXPECT_EQ(grid("B = 1, Skv = 700;"), 1 * 8 * 6);
  EXPECT_EQ(grid("B = 1, Skv = 128;"), 8);
  EXPECT_EQ(grid("B = 64, Skv = 8192;"), 132);
  EXPECT_EQ(step_of(*lowered("dims B = 1, Hq = 8, Hkv = 1, Sq = 1, Skv = 8192, D = 256;"))
                .launches[0]
                .grid[0],
            25);
  const NativeProgram made =
      lowered("dims B = 4, Hq = 32, Hkv = 8, Sq = 1, Skv = 8192, D = 128;").value();
  const plan::TensorInfo& counter = made.program.internals.front();
  EXPECT_EQ(counter.name, "native.counter");
  EXPECT_THAT(counter.dims, ::testing::ElementsAre(1 + 4 * 8 * 4));
  EXPECT_EQ(made.program.internals.back().dims[0], 4 * 8 * 4 * 4 * 32 * (4 + 64));
}

TEST(Native, PatchesAreNotDividedIntoParts) {
  const std::string text = source_of(
      "dims B = 1, Hq = 1, Sq = 4096, Skv = 32768, D = 128; "
      "mask abs(q_idx % 64 - kv_idx % 64) <= 8 && kv_idx // 64 < (q_idx // 64 - 8) * 8;");
  EXPECT_THAT(text, AllOf(HasSubstr("kPatches = true;"), HasSubstr("kSplits = 1;")));
}

std::string lowered_text(const std::string& sizes) {
  return source_of("dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = 4096, " + sizes);
}

// Panels of 32 columns leave few that are not used.
TEST(Native, MatricesAreAsWideAsHeadDimensions) {
  EXPECT_THAT(lowered_text("D = 72;"), AllOf(HasSubstr("kDepth = 80;"), HasSubstr("kWidth = 96;"),
                                             HasSubstr("kStored = 72;"), HasSubstr("kKeys = 96;"),
                                             HasSubstr("kDepthPanel = 32;")));
  EXPECT_THAT(lowered_text("Dqk = 40, Dv = 24;"),
              AllOf(HasSubstr("kDepth = 48;"), HasSubstr("kWidth = 32;"),
                    HasSubstr("kDepthPanel = 64;"), HasSubstr("kWidthPanel = 32;")));
  const NativeProgram made =
      lowered("dims B = 1, Hq = 2, Sq = 400, Skv = 400, Dqk = 160, Dv = 128;").value();
  EXPECT_EQ(map_of(made, "q").box[0], 32);
  EXPECT_EQ(map_of(made, "k").swizzle, 64);
  EXPECT_EQ(map_of(made, "v").box[0], 64);
  EXPECT_EQ(map_of(made, "v").swizzle, 128);
}

TEST(Native, KeysThatOneTileReadsAreNotPromotedToPairsOfLines) {
  const auto promotion = [](const std::string& clauses, const char* name) {
    const std::string dims = "dims B = 2, Hq = 8, Hkv = 2, Skv = 4096, D = 128, Sq = ";
    return map_of(lowered(dims + clauses).value(), name).promotion;
  };
  EXPECT_EQ(promotion("1;", "k"), 128);
  EXPECT_EQ(promotion("16;", "v"), 128);
  EXPECT_EQ(promotion("1; layout thd;", "k"), 128);
  EXPECT_EQ(promotion("1;", "q"), 256);
  EXPECT_EQ(promotion("4096;", "k"), 256);
  EXPECT_EQ(promotion("4096; layout thd;", "k"), 256);
}

TEST(Native, WarpGroupsDivideWideOutputs) {
  EXPECT_THAT(lowered_text("D = 512;"), AllOf(HasSubstr("kShares = 2;"), HasSubstr("kGroups = 1;"),
                                              HasSubstr("kShare = 256;")));
  EXPECT_THAT(lowered_text("D = 328;"),
              AllOf(HasSubstr("kWidth = 352;"), HasSubstr("kShare = 192;")));
  EXPECT_THAT(lowered_text("D = 256;"), HasSubstr("kShares = 1;"));
  EXPECT_EQ(
      step_of(*lowered("dims B = 1, Hq = 128, Hkv = 1, Sq = 1, Skv = 512, Dqk = 576, Dv = 512;"))
          .launches[0]
          .block[0],
      3 * 128);
}

// Multi-head latent attention: one head of keys, which few tiles read.
TEST(Native, FewRowsPackMoreHeads) {
  EXPECT_THAT(source_of("dims B = 1, Hq = 128, Hkv = 1, Sq = 1, Skv = 512, D = 512;"),
              HasSubstr("kPack = 64;"));
  EXPECT_THAT(source_of("dims B = 1, Hq = 16, Hkv = 1, Sq = 2, Skv = 512, D = 128;"),
              HasSubstr("kPack = 16;"));
  EXPECT_THAT(source_of("dims B = 1, Hq = 16, Hkv = 1, Sq = 100, Skv = 512, D = 128;"),
              HasSubstr("kPack = 8;"));
}

TEST(Native, TilesOfRandomDropoutAreNoLargerThanOthers) {
  const ir::Attention attention =
      of("dims B = 1, Hq = 2, Sq = 1, Skv = 512, Dqk = 192, Dv = 128; dropout 0.1;");
  const std::vector<native::Tile> tiles = native::tiles_for(attention, false, {});
  EXPECT_EQ(tiles.size(), 3U);
  for (const native::Tile& tile : tiles) EXPECT_LE(tile.keys, 96);
}

// A mask that reads nothing costs nothing at an execute.
TEST(Native, ListsThatTheGpuMakesAreWork) {
  EXPECT_FALSE(lowered(std::string(kSizes) + "mask q_idx >= kv_idx;")->work.lists.has_value());
  const auto made =
      lowered(std::string(kSizes) + "tensor d: i32[B, Skv]; mask d[b, kv_idx] == d[b, q_idx];");
  ASSERT_TRUE(made->work.lists.has_value());
  EXPECT_EQ(made->work.lists->scores, 0);
  EXPECT_EQ(made->work.lists->cells, 2 * 10 * 25);
  EXPECT_GE(made->work.lists->bytes, 2 * 2 * 10 * 8);  // runs, written and read
  const auto looks =
      lowered(std::string(kSizes) + "tensor d: i32[B, Sq + Skv]; mask d[b, kv_idx + q_idx] == 1;");
  EXPECT_EQ(looks->work.lists->scores, 2 * 300 * 400);
}

TEST(Native, TakesTheNextTileWhereKernelsWereRefused) {
  const std::int64_t best = step_of(*lowered(kSizes)).launches[0].block[0];
  const std::int64_t next = step_of(*lowered(kSizes, 1)).launches[0].block[0];
  EXPECT_EQ(best, 512);
  EXPECT_EQ(next, 384);
  EXPECT_THAT(step_of(*lowered(kSizes, 1)).source, HasSubstr("kKeys = 144;"));
  EXPECT_THAT(step_of(*lowered(kSizes, 2)).source, HasSubstr("kKeys = 128;"));
  EXPECT_THAT(step_of(*lowered(kSizes, 3)).source, HasSubstr("kKeys = 64;"));
  EXPECT_EQ(step_of(*lowered(kSizes, 4)).launches[0].block[0], 256);
  const auto none = lowered(kSizes, 5);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::unsupported);
  EXPECT_THAT(none.error().message, HasSubstr("no tile"));
}

TEST(Native, SectionsOutlastTheirLongestTile) {
  const std::string dims = "dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = 4096, D = 128; ";
  EXPECT_THAT(source_of(dims + "mask q_idx >= kv_idx;"), HasSubstr("kSection = 8;"));
  EXPECT_THAT(source_of(dims + "mask abs(q_idx - kv_idx) <= 256 || q_idx < 64;"),
              HasSubstr("kSection = 32;"));
}

TEST(Native, TextOfACausalMask) {
  attn::testing::expect_golden("tests/golden/native/causal.cu",
                               source_of(std::string(kSizes) + "mask q_idx >= kv_idx;"));
}

TEST(Native, TextOfExpressionsThatReadTensors) {
  attn::testing::expect_golden(
      "tests/golden/native/expressions.cu",
      source_of(
          "dims B = 1, Hq = 2, Hkv = 2, Sq = 100, Skv = 200, D = 64; dtype f16; param c: f32; "
          "tensor t: f32[Hq]; tensor d: i32[Sq]; tensor s: f32[Hq]; "
          "score c * tanh(score + t[h] * (kv_idx - q_idx)); "
          "mask d[q_idx] <= kv_idx // 3; sink s[h]; outputs o, lse, max, sum_exp;"));
}

TEST(Native, TextOfClassesOfADilatedWindow) {
  attn::testing::expect_golden(
      "tests/golden/native/dilated.cu",
      source_of("dims B = 2, Hq = 8, Hkv = 2, Sq = 1024, Skv = 1024, D = 64; layout bshd; "
                "tensor s: f32[Hq]; sink s[h]; outputs o, lse; "
                "mask abs(q_idx - kv_idx) <= 256 && abs(q_idx - kv_idx) % 4 == 0;"));
}

// Tensors of the program are those of the whole attention.
TEST(Native, ClassesAreComputedWhereTheyHaveFewerScores) {
  const std::string dilated = "mask (q_idx - kv_idx) % 4 == 0; ";
  const std::string sizes = "dims B = 2, Hq = 8, Hkv = 2, Sq = 1024, Skv = 1024, D = 128; ";
  const NativeProgram classes = lowered(sizes + dilated + "layout bshd;").value();
  ASSERT_EQ(classes.parts.size(), 1U);
  EXPECT_THAT(classes.parts[0], HasSubstr("c < 4: everything"));
  const NativeProgram dense = lowered(sizes + dilated + "layout bhsd;").value();
  EXPECT_TRUE(dense.parts.empty());
  EXPECT_EQ(classes.work.scores * 4, dense.work.scores);
  const auto dims = [](const NativeProgram& made) { return made.program.tensors[0].dims; };
  EXPECT_EQ(dims(classes), dims(dense));
  EXPECT_TRUE(lowered("dims B = 2, Hq = 8, Hkv = 2, Sq = 16, Skv = 16, D = 64; " + dilated)
                  .value()
                  .parts.empty());
}

TEST(Native, TextOfRandomDropout) {
  const std::string clauses = std::string(kSizes) +
                              "tensor d: i32[Skv]; mask d[q_idx] == d[kv_idx]; dropout 0.1; "
                              "outputs o, lse;";
  attn::testing::expect_golden("tests/golden/native/dropout.cu", source_of(clauses));
  const plan::Program program = lowered(clauses)->program;
  for (const char* name : {"seed", "offset"}) {
    const auto found = std::ranges::find(program.tensors, name, &plan::TensorInfo::name);
    ASSERT_NE(found, program.tensors.end());
    EXPECT_EQ(found->role, plan::TensorRole::control);
    EXPECT_EQ(found->dtype, DType::i64);
  }
}

constexpr const char* kOf8Bits = "dtype e4m3; quantize per_tensor; ";

TEST(Native, TextOf8BitFloats) {
  attn::testing::expect_golden(
      "tests/golden/native/fp8.cu",
      source_of(std::string(kSizes) + kOf8Bits +
                "mask q_idx >= kv_idx; score score + 0.5 * (kv_idx - q_idx); "
                "outputs o, lse, amax_s, amax_o;"));
}

// Values are transposed last before the forward, which begins meanwhile.
TEST(Native, TransposesValuesOf8Bits) {
  const std::string dims = "dims B = 2, Hq = 8, Hkv = 2, Sq = 300, Skv = 400, D = 192; ";
  const NativeProgram made =
      lowered(dims + kOf8Bits + "layout thd; tensor d: i32[Skv]; mask d[kv_idx] == d[q_idx];")
          .value();
  std::vector<std::string> kernels;
  for (const plan::Launch& launch : step_of(made).launches) kernels.push_back(launch.kernel);
  EXPECT_THAT(kernels, ::testing::ElementsAre("attn_lists", "attn_values", "attn_forward"));
  EXPECT_EQ(step_of(made).launches[1].grid[0], 4 * 2 * 2 * 2);  // 128 keys and columns each
  EXPECT_TRUE(step_of(made).launches[2].overlaps);
  const plan::TensorMapArgument& values = map_of(made, "native.values");
  EXPECT_THAT(values.dims, ::testing::ElementsAre(400, 192, 2, 2));
  EXPECT_THAT(values.box, ::testing::ElementsAre(128, 192, 1, 1));
  EXPECT_EQ(map_of(made, "k").swizzle, 64);  // 192 bytes are panels of 64
  EXPECT_EQ(made.work.moved, 2.0 * 2 * 2 * 400 * 192);
}

TEST(Native, RefusesSome8BitAttention) {
  const std::string dims = std::string(kOf8Bits) + "dims B = 2, Hq = 4, Hkv = 2, Sq = 64, ";
  EXPECT_EQ(refusal(dims + "D = 256;"), "");
  EXPECT_EQ(refusal(dims + "D = 72;"), "");
  EXPECT_EQ(refusal(dims + "D = 60;"), "");
  EXPECT_THAT(refusal(dims + "Dqk = 576, Dv = 512;"),
              HasSubstr("no 8-bit forward above Dqk 256 (this is 576)"));
  EXPECT_EQ(refusal(dims + "D = 64; layout q: strides(Sq * D * Hq, D, Hq * D + 8, 1);"), "");
  EXPECT_EQ(refusal(dims + "D = 64; layout k: paged(page = 48), v: paged(page = 7);"), "");
  EXPECT_EQ(refusal(dims + "D = 64; layout paged(page = 8);"), "");
  EXPECT_THAT(
      refusal(
          "dtype e4m3; quantize mxfp8; layout bhsd; dims B = 2, Hq = 4, Hkv = 2, Sq = 64, D = 64;"),
      HasSubstr("no scales of blocks"));
}

// 8-bit floats have no schedule: the lengths that a spec declares decide; what a part takes bounds
// the number of them.
TEST(Native, LongBatchesAmongShortOnesAreDivided) {
  const auto parts = [](std::string_view batches, std::string_view lengths) {
    return lowered(fmt::format("{}dims {}, Hq = 32, Hkv = 8, Sq = 1, D = 128; lengths kv = {};",
                               kOf8Bits, batches, lengths))
        ->work.splits;
  };
  EXPECT_EQ(parts("B = 64, Skv = 32768", "Skv"), 1);
  EXPECT_GT(parts("B = 64, Skv = 32768", "Skv // (i0 + 1)"), 1);
  EXPECT_EQ(parts("B = 64, Skv = 1048576", "where(i0 == 0, Skv, 128)"), 7) << "128 MiB";
}

// Keys of all parts are known to none, and so is the largest weight that dropout keeps.
TEST(Native, DividesNoKeysBesideTheLargestWeightAfterDropout) {
  const std::string clauses =
      std::string(kOf8Bits) + "dims B = 1, Hq = 4, Hkv = 1, Sq = 4, Skv = 8192, D = 128; ";
  const auto parts = [&](const char* more) { return lowered(clauses + more)->work.splits; };
  EXPECT_GT(parts("outputs o, amax_s;"), 1);
  EXPECT_GT(parts("dropout 0.1;"), 1);
  EXPECT_EQ(parts("dropout 0.1; outputs o, amax_s;"), 1);
}

// Kernels of warps serve what TMA cannot read, and the program says so.
TEST(Native, LeavesRowsThatItCannotReadToKernelsOfWarps) {
  const std::string dims = "dims B = 2, Hq = 4, Hkv = 2, Sq = 64, Skv = 64, ";
  for (const char* clauses :
       {"D = 60;", "D = 64; layout k: strides(Skv * D * Hkv, D, Hkv * D + 4, 1);",
        "D = 64; layout v: strides(Skv * D * Hkv, 0, D, 1);"}) {
    const NativeProgram made = lowered(dims + clauses).value();
    EXPECT_THAT(step_of(made).source, HasSubstr("mma_forward.cuh")) << clauses;
    EXPECT_THAT(made.parts, ::testing::ElementsAre(HasSubstr("cannot read the rows"))) << clauses;
  }
  const NativeProgram made = lowered(dims + "D = 64;").value();
  EXPECT_THAT(step_of(made).source, HasSubstr("attn/forward.cuh"));
  EXPECT_THAT(made.parts, ::testing::IsEmpty());
}

TEST(Native, RefusesWhatItCannotCompute) {
  const std::string dims = "dims B = 2, Hq = 4, Hkv = 2, Sq = 64, Skv = 64, ";
  EXPECT_EQ(refusal(dims + "D = 64;"), "");
  EXPECT_THAT(refusal(dims + "D = 260;"), HasSubstr("takes D in multiples of 8 (this is 260)"));
  EXPECT_EQ(refusal(dims + "Dqk = 576, Dv = 512;"), "");
  EXPECT_THAT(refusal(dims + "Dqk = 584, Dv = 512;"),
              HasSubstr("attnc's own engine has no forward above Dqk 576 (this is 584)"));
  EXPECT_THAT(refusal(dims + "Dqk = 512, Dv = 520;"),
              HasSubstr("no forward above Dv 512 (this is 520)"));
  EXPECT_THAT(refusal(dims + "D = 264; layout k: strides(Skv * D * Hkv, D, Hkv * D + 4, 1);"),
              HasSubstr("multiples of 16 bytes"));
  EXPECT_THAT(refusal("dims B = 2147483647, Hq = 2, Sq = 64, D = 64;"),
              HasSubstr("2147483647 rows of all heads"));
  EXPECT_THAT(refusal(dims + "D = 64; dropout 0.00001;"), HasSubstr("is 0 for random numbers"));
  EXPECT_EQ(refusal(dims + "D = 64; tensor t: bool[Skv]; dropout 0.00001, t[kv_idx];"), "");
}

TEST(Native, IsForGpusSinceAmpere) {
  const ir::Attention attention = of(kSizes);
  target::Context other = attn::testing::in(false);
  other.gpu.sm = 75;
  EXPECT_THAT(check_native(attention, other).error().message, HasSubstr("8.0 and later, not 7.5"));
  other.gpu.sm = 80;
  EXPECT_TRUE(check_native(attention, other).ok());
}

// The tensor map of the table that is copied beside the keys, which follows those of q, k and v.
std::optional<plan::TensorMapArgument> table_map(const std::string& clauses) {
  const NativeProgram made = lowered(std::string(kSizes) + clauses).value();
  const auto& arguments = step_of(made).launches.back().arguments;
  const auto* map = std::get_if<plan::TensorMapArgument>(&arguments[3]);
  return map == nullptr ? std::nullopt : std::optional(*map);
}

TEST(Native, TablesAreCopiedBesideTheKeys) {
  using ::testing::ElementsAre;
  const auto shared = table_map("tensor t: bf16[Sq, Skv]; score score + t[q_idx, kv_idx];");
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->tensor.name, "t");
  EXPECT_THAT(shared->dims, ElementsAre(400, 1, 300, 1, 1));
  EXPECT_EQ(shared->strides[1], 400);
  EXPECT_THAT(shared->box, ElementsAre(64, 1, 32, 1, 1));  // 4 heads share 32 rows
  const auto of_heads =
      table_map("tensor t: f16[B, Hq, Sq, Skv]; score tanh(score) * t[b, h, q_idx, kv_idx];");
  ASSERT_TRUE(of_heads);
  EXPECT_THAT(of_heads->dims, ElementsAre(400, 4, 300, 2, 2));
  EXPECT_THAT(of_heads->strides, ElementsAre(120000, 400, 480000, 960000));
  EXPECT_THAT(of_heads->box, ElementsAre(64, 4, 32, 1, 1));
}

TEST(Native, AddendsCostAMultiplyAddByAConstant) {
  const std::string text =
      source_of("dims B = 1, Hq = 2, Sq = 100, Skv = 200, D = 64; score score - 0.5 * kv_idx;");
  EXPECT_THAT(text, HasSubstr("return Lines{(0.0f - v3) * 8.0f, (0.0f - v6) * 8.0f};"));
  EXPECT_THAT(text, HasSubstr("return fmaf(lines.slope, offset, score);"));
  EXPECT_THAT(
      source_of("dims B = 1, Hq = 2, Sq = 100, Skv = 200, D = 64; tensor t: f32[Sq]; score score + "
                "t[q_idx];"),
      AllOf(HasSubstr("return Lines{(0.0f + v1) * 8.0f, 0.0f};"), HasSubstr("return score;")));
}

// What is computed once a row leaves the unit to the exponentials.
TEST(Native, SomeExponentialsArePolynomialsWhereScoresTakeTheSpecialUnit) {
  const auto has_some = [](const char* score) {
    const std::string text = source_of(std::string(kSizes) + "score " + score + ";");
    return text.find("kPolynomials = 2;") != text.npos;
  };
  for (const char* score : {"30.0 * tanh(score / 30.0)", "tanh(score) - sqrt(abs(q_idx - kv_idx))",
                            "atan2(score, 2.0)"})
    EXPECT_TRUE(has_some(score)) << score;
  for (const char* score :
       {"score / 30.0", "80.0 * tanh(score / 80.0)", "min(max(score, -9.0), 9.0) - log(q_idx + 1)"})
    EXPECT_FALSE(has_some(score)) << score;
}

// Its addends are added to the exponents, where softmax might leave out those of a whole row.
TEST(Native, SigmoidKeepsWhatIsConstantAlongARow) {
  const std::string text = source_of(
      "dims B = 1, Hq = 2, Sq = 100, Skv = 200, D = 64; normalize sigmoid; "
      "score score - log(q_idx + 1);");
  EXPECT_THAT(text, AllOf(HasSubstr("kSigmoid = true"), HasSubstr("kBounded = true"),
                          HasSubstr("return Lines{(0.0f - v4) * 8.0f, 0.0f};")));
  EXPECT_THAT(source_of(kSizes), HasSubstr("kSigmoid = false"));
}

// Rows of f32 are copied as they are, 8 columns longer than the block, so that they begin in other
// banks. A table of its own for each head takes more than the tile of 128 keys has room for.
TEST(Native, TablesOfSingleFloatsAreCopiedBesideTheKeys) {
  using ::testing::ElementsAre;
  const auto map = table_map("tensor t: f32[Hq, Sq, Skv]; score score + t[h, q_idx, kv_idx];");
  ASSERT_TRUE(map);
  EXPECT_THAT(map->dims, ElementsAre(400, 4, 300, 2, 1));
  EXPECT_THAT(map->box, ElementsAre(112 + 8, 4, 32, 1, 1));
  EXPECT_EQ(map->swizzle, 0);
  const auto shared = table_map("tensor t: f32[Sq, Skv]; score score + t[q_idx, kv_idx];");
  ASSERT_TRUE(shared);
  EXPECT_THAT(shared->box, ElementsAre(144 + 8, 1, 32, 1, 1));
}

TEST(Native, OtherTensorsAreReadByPlainLoads) {
  EXPECT_FALSE(table_map("tensor t: f32[Sq, Skv + 2]; score score + t[q_idx, kv_idx];"));
  EXPECT_FALSE(table_map("tensor t: bf16[Skv, Sq]; score score + t[kv_idx, q_idx];"));
  EXPECT_FALSE(table_map("tensor t: bf16[Sq, Skv + 4]; score score + t[q_idx, kv_idx];"));
  EXPECT_FALSE(table_map("tensor t: bf16[Hkv, Sq, Skv]; score score + t[h // 4, q_idx, kv_idx];"));
  EXPECT_FALSE(table_map("tensor t: bf16[Skv]; score score + t[kv_idx];"));
}

// Masks of a neighbourhood, 7 x 7, of a grid of 64 columns.
constexpr const char* kNeighbourhood =
    "mask abs(q_idx // 64 - kv_idx // 64) <= 3 && abs(q_idx % 64 - kv_idx % 64) <= 3; ";

TEST(Native, TilesAreRectanglesOfAGrid) {
  using ::testing::ElementsAre;
  const std::string dims = "dims B = 2, Hq = 8, Hkv = 2, Sq = 4096, Skv = 4096, D = 128; ";
  const auto keys = [&](const std::string& clauses) {
    const NativeProgram made = lowered(dims + clauses).value();
    return std::get<plan::TensorMapArgument>(step_of(made).launches.back().arguments[1]);
  };
  EXPECT_THAT(keys(kNeighbourhood).box, ElementsAre(64, 8, 16, 1, 1));
  EXPECT_EQ(
      keys(std::string("layout q: strides(8388608, 128, 1024, 1); ") + kNeighbourhood).box.size(),
      4U)
      << "batches at any distance";
  EXPECT_EQ(keys("mask abs(q_idx % 64 - kv_idx % 64) <= 63 && q_idx >= kv_idx;").box.size(), 4U)
      << "blocks of adjacent keys have fewer scores";
}

TEST(Native, MasksOfAGridDivideNothing) {
  const std::string text = source_of(
      "dims B = 1, Hq = 2, Sq = 4096, Skv = 4096, D = 64; score "
      "score + 0.5 * (kv_idx - q_idx) + 0.25 * (kv_idx // 64); " +
      std::string(kNeighbourhood));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("mask(int b, int h, kernels::Place row, kernels::Place column)"),
            HasSubstr("(long long)row.y - column.y"), HasSubstr("(long long)row.x - column.x"),
            HasSubstr("(float)column.y"), Not(HasSubstr(">> 6"))));
}

void expect_no_spills(const std::string& clauses) {
  std::string report;
  const auto image =
      nvrtc::compile_kernel(source_of(clauses), 90, "", codegen::KernelKind::general, &report);
  ASSERT_TRUE(image.ok()) << clauses << image.error().to_text();
  EXPECT_THAT(report,
              AllOf(HasSubstr(" 0 bytes spill stores, 0 bytes spill loads"), Not(HasSubstr("C75"))))
      << clauses;
}

void expect_kernels_without_spills(std::span<const char* const> all) {
  for (const char* clauses : all) {
    expect_no_spills("dims B = 2, Hq = 8, Hkv = 2, Skv = 1000, " + std::string(clauses));
  }
}

// Whole rows, parts of rows, tables and lists; the others are the night's.
TEST(Native, KernelsDoNotSpill) {
  if (kWatched) GTEST_SKIP() << "kernels of debug builds spill";
  constexpr const char* kForms[] = {
      "Sq = 1000, D = 64; mask q_idx >= kv_idx;",
      "Sq = 1, D = 128; layout paged(page = 64); lengths kv; mask q_idx >= kv_idx;",
      "Sq = 1000, D = 128; tensor t: bf16[Hq, Sq, Skv]; score score + t[h, q_idx, kv_idx];",
      "Sq = 1000, D = 128; layout bshd; mask (q_idx - kv_idx) % 4 == 0; outputs o, lse;"};
  expect_kernels_without_spills(kForms);
}

// Also the kernels that make lists.
TEST(NightlyNative, KernelsDoNotSpill) {
  if (kWatched) GTEST_SKIP() << "kernels of debug builds spill";
  constexpr const char* kClauses[] = {
      "Sq = 1000, D = 128; dtype f16; mask q_idx >= kv_idx;",
      "Sq = 1000, D = 64; tensor t: f16[Hq, Sq, Skv]; score score + t[h, q_idx, kv_idx];",
      "Sq = 1, D = 128; tensor t: bf16[Hq, Sq, Skv]; score score + t[h, q_idx, kv_idx];",
      "Sq = 1000, D = 128; score score + (q_idx - kv_idx) * 0.01;",
      "Sq = 1000, D = 128; score score * score;",
      "Sq = 1000, D = 128; score where(abs(kv_idx - q_idx) % 2 == 1, score * 0.5, score * 2);",
      "Sq = 1000, D = 128; "
      "mask (q_idx // 32 + kv_idx // 32) % 3 < 2 && abs(q_idx % 32 - kv_idx % 32) <= 6;",
      "Sq = 1000, D = 64; dropout 0.1;",
      "Sq = 1000, D = 128; dropout 0.1; mask q_idx >= kv_idx;",
      "Sq = 1000, D = 128; dropout 0.1; score 50.0 * tanh(score / 50.0);",
      "Sq = 1000, D = 128; dtype f16; score 30.0 * tanh(score / 30.0); mask q_idx >= kv_idx;",
      "Sq = 1000, D = 256; dropout 0.1; mask q_idx >= kv_idx;",
      "Sq = 1, D = 128; dropout 0.1; lengths kv;",
      "Sq = 1000, Dqk = 192, Dv = 128; dropout 0.1;",
      "Sq = 1000, D = 128; dropout 0.99; score 30.0 * tanh(score / 30.0); lengths q, kv; "
      "outputs o, lse;",
      "Sq = 1000, Dqk = 192, Dv = 128; lengths q, kv;",
      "Sq = 1000, D = 256; outputs o, lse;",
      "Sq = 1, D = 64;",
      "Sq = 1, D = 128; score 30.0 * tanh(score / 30.0); outputs o, max, sum_exp;",
      "Sq = 1, Dqk = 192, Dv = 128;",
      "Sq = 1, D = 192;",
      "Sq = 1, D = 256; lengths kv;",
      "Sq = 1000, D = 80; mask q_idx >= kv_idx;",
      "Sq = 1000, D = 96;",
      "Sq = 1000, D = 160; mask q_idx >= kv_idx;",
      "Sq = 1000, D = 512; mask q_idx >= kv_idx; outputs o, max, sum_exp;",
      "Sq = 1, Dqk = 576, Dv = 512; layout paged(page = 1); lengths kv;",
      "Sq = 1000, D = 128; tensor t: f32[Hq, Sq, Skv]; score score + t[h, q_idx, kv_idx];",
      "Sq = 1000, D = 64; layout paged(page = 1, tables = 2);",
      "Sq = 1000, D = 128; layout thd; mask q_idx >= kv_idx;",
      "Sq = 1000, D = 64; layout q: thd, o: thd, k: paged(page = 64), v: paged(page = 64); "
      "lengths kv;",
      "Sq = 1000, D = 128; score 30.0 * tanh(score / 30.0); outputs o, max, sum_exp;",
      "Sq = 1000, D = 128; tensor t: bf16[Sq, Skv]; score score + t[q_idx, kv_idx];",
      "Sq = 1000, D = 128; tensor d: i32[Skv]; mask d[q_idx] == d[kv_idx] && q_idx >= kv_idx;",
      "Sq = 1000, D = 128; align bottom_right; lengths q, kv; mask 0 <= q_idx - kv_idx < 100;",
      "Sq = 1000, D = 256; tensor n: i32[B]; mask kv_idx < n[b] || q_idx >= kv_idx;",
      "Sq = 1, D = 128; layout paged(page = 1); align bottom_right; lengths kv; "
      "mask 0 <= q_idx - kv_idx < 100;",
      "Sq = 1000, D = 128; normalize sigmoid;",
      "Sq = 1000, D = 128; normalize sigmoid; score score - 8; mask q_idx >= kv_idx;"};
  expect_kernels_without_spills(kClauses);
}

TEST(NightlyNative, KernelsOfGridsDoNotSpill) {
  if (kWatched) GTEST_SKIP() << "kernels of debug builds spill";
  for (const char* clauses :
       {"D = 64; ", "D = 128; outputs o, lse, max, sum_exp; ",
        "D = 128; score 30.0 * tanh((score + 0.5 * kv_idx) / 30.0); ",
        "D = 128; tensor t: f32[Hq]; sink t[h]; score score - t[h] * abs(q_idx - kv_idx); "}) {
    expect_no_spills("dims B = 2, Hq = 8, Hkv = 2, Sq = 4096, Skv = 4096, " + std::string(clauses) +
                     kNeighbourhood);
  }
}

TEST(Native, WaitsOfDebugBuildsNameBarriers) {
  const std::string watch = native::watch_text({.stages = 2, .queries = 1, .tables = 1});
  EXPECT_EQ(watch,
            "#define ATTN_BARRIERS \"queries 0\", \"keys 0\", \"keys 1\", \"values 0\", "
            "\"values 1\", \"table 0\"\n");
  const std::string source =
      source_of("dims B = 2, Hq = 8, Hkv = 2, Sq = 1000, Skv = 1000, D = 64;");
  const auto image = nvrtc::compile_kernel(watch + source, 90, "", codegen::KernelKind::general);
  ASSERT_TRUE(image.ok()) << image.error().to_text();
  EXPECT_THAT(*image, HasSubstr("waits until %s is %s"));
  EXPECT_EQ(source.starts_with("#define ATTN_BARRIERS"), kWatched);
}

}  // namespace
}  // namespace attn::engines::programs_tests
