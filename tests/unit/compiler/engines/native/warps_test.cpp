// Programs of kernels whose products are those of warps (attn/mma_forward.cuh).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "compiler/engines/native/programs.h"
#include "compiler/engines/native/row_tiles.h"
#include "compiler/engines/native/skeleton.h"
#include "compiler/engines/native/tiles.h"
#include "compiler/nvrtc/assembly.h"
#include "compiler/nvrtc/nvrtc.h"
#include "compiler/target/capabilities.h"
#include "tests/unit/compiler/engines/native/lowered.h"

namespace attn::engines::warps_tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kSizes;
using ::testing::Not;
using testing::of;
using testing::step_of;

constexpr std::int64_t kGpus[] = {80, 86, 89, 100, 103, 120, 121};

target::Context of_gpu(std::int64_t sm, bool backward = false) {
  target::Context context = attn::testing::in(backward);
  context.gpu.sm = sm;
  return context;
}

Result<NativeProgram> lowered(const std::string& clauses, const target::Context& context,
                              std::size_t refused = 0) {
  const ir::Attention attention = of(clauses);
  const masks::MaskAnalysis mask(attention, nullptr);
  return NativePrograms(attention, masks::varying(mask.axes(), attention.dims), context)
      .make(refused);
}

Error refusal(const std::string& clauses, const target::Context& context) {
  const Result<NativeProgram> made = lowered(clauses, context);
  EXPECT_FALSE(made.ok()) << clauses;
  return made.ok() ? Error() : made.error();
}

TEST(NativeOfWarps, IsForGpusWithoutProductsOfWarpGroups) {
  for (const std::int64_t sm : kGpus) EXPECT_TRUE(native::has_kernels_of_warps(of_gpu(sm))) << sm;
  EXPECT_FALSE(native::has_kernels_of_warps(of_gpu(90)));
  EXPECT_EQ(native::skeleton_of(of_gpu(75)), std::nullopt);
  target::Context wanted = of_gpu(90);
  wanted.rewrites.warp_groups = false;
  EXPECT_TRUE(native::has_kernels_of_warps(wanted));
}

TEST(NativeOfWarps, IsALaunchThatReadsTensorsByTheirAddresses) {
  const NativeProgram made = lowered(kSizes, of_gpu(80)).value();
  ASSERT_EQ(made.program.steps.size(), 1U);
  const plan::KernelStep& step = step_of(made);
  ASSERT_EQ(step.launches.size(), 1U);
  const plan::Launch& launch = step.launches[0];
  EXPECT_EQ(launch.block[0], 128);
  EXPECT_EQ(launch.grid[0], 2 * 2 * 10);  // items: units of 4 heads, tiles of 32 rows
  EXPECT_FALSE(launch.overlaps);
  for (const plan::KernelArgument& argument : launch.arguments)
    EXPECT_FALSE(std::holds_alternative<plan::TensorMapArgument>(argument));
  EXPECT_THAT(step.source, AllOf(HasSubstr("#include \"attn/mma_forward.cuh\""),
                                 HasSubstr("kernels::forward_of_warps<Constants>"),
                                 HasSubstr("kStrips = 2;"), Not(HasSubstr("TensorMap"))));
}

// Blocks of threads that are to share a multiprocessor leave each other room.
TEST(NativeOfWarps, TilesFitSharedMemoryAndRegisters) {
  for (const std::int64_t sm : kGpus) {
    const std::int64_t most = limit(target::Capability::shared_bytes_of_block, of_gpu(sm));
    for (std::int64_t depth = 8; depth <= native::kMostDepthOfWarps; depth += 8) {
      const auto tiles = native::tiles_of_warps(
          of(fmt::format("dims B = 1, Hq = 2, Sq = 512, Skv = 512, D = {};", depth)), false, most);
      ASSERT_FALSE(tiles.empty()) << sm << ' ' << depth;
      for (const native::Tile& tile : tiles) {
        EXPECT_LE(tile.resident * (tile.shared_bytes() + 1024), most + 1024);
        EXPECT_LE(tile.threads() * tile.resident * 255, 65536);
        EXPECT_LE(tile.strips * (tile.width / 2 + tile.keys / 2), 192) << depth;
        EXPECT_GE(tile.stages, 1);
      }
    }
  }
}

TEST(NativeOfWarps, SayWhatTheyDoNotCompute) {
  const auto message = [](const std::string& clauses) {
    return refusal(kSizes + clauses, of_gpu(80)).message;
  };
  EXPECT_EQ(message("dtype e4m3; quantize mxfp8;"), "attnc's kernels have no scales of blocks");
  EXPECT_THAT(refusal("dims B = 1, Hq = 1, Sq = 64, Skv = 64, D = 264;", of_gpu(80)).message,
              HasSubstr("no forward above D 256 (this is 264)"));
  EXPECT_THAT(refusal("dims B = 1, Hq = 1, Sq = 64, Skv = 64, D = 264;", of_gpu(89, true)).message,
              HasSubstr("no backward above D 256 (this is 264)"));
}

// Threads that copy widen rows of 8 bits, so products have 16; a kernel before zeroes magnitudes.
TEST(NativeOfWarps, WidenRowsOf8BitsAsTheyCopy) {
  const std::string clauses = kSizes + std::string("dtype e5m2; quantize per_tensor, o: bf16; ");
  const NativeProgram plain = lowered(clauses, of_gpu(80)).value();
  ASSERT_EQ(step_of(plain).launches.size(), 1U);
  EXPECT_THAT(step_of(plain).source, AllOf(HasSubstr("using Float = kernels::F16;"),
                                           HasSubstr("using Narrow = kernels::E5M2;"),
                                           Not(HasSubstr("transposed_values.cuh"))));
  EXPECT_EQ(plain.work.moved, 0);
  const NativeProgram made = lowered(clauses + "outputs o, amax_s;", of_gpu(80)).value();
  ASSERT_EQ(step_of(made).launches.size(), 2U);
  EXPECT_EQ(step_of(made).launches[0].kernel, "attn_zero");
  EXPECT_EQ(step_of(made).facts->launch, 1);
}

// Keys and values of 8 bits beside queries of 16 are widened to the type of queries, which stay.
TEST(NativeOfWarps, WidenKeysOfCaches) {
  const NativeProgram made =
      lowered(kSizes + std::string("dtype bf16, k: e4m3, v: i8; quantize kv(token); "), of_gpu(80))
          .value();
  EXPECT_THAT(step_of(made).source,
              AllOf(HasSubstr("using Float = kernels::BF16;"),
                    HasSubstr("using Keys = kernels::E4M3;"), HasSubstr("kNarrowKeys = true;"),
                    HasSubstr("kTokenScales = true;"), Not(HasSubstr("kConvertsQueries"))));
}

// The best tile whose kernel does not spill more than few bytes, for these expressions.
void expect_a_kernel_without_spills(const std::string& clauses, std::int64_t sm,
                                    bool backward = false) {
  for (std::size_t refused = 0; refused < 4; ++refused) {
    const Result<NativeProgram> made = lowered(clauses, of_gpu(sm, backward), refused);
    ASSERT_TRUE(made.ok()) << sm << ' ' << clauses << made.error().to_text();
    std::string log;
    const auto image =
        nvrtc::compile_kernel(step_of(*made).source, sm, "", codegen::KernelKind::general, &log);
    ASSERT_TRUE(image.ok()) << sm << ' ' << clauses << image.error().to_text();
    const nvrtc::KernelLimits limits{.spilled_bytes = backward ? 32 : 0, .may_spill = "attn_lists"};
    if (nvrtc::check_assembly(nvrtc::read_assembly(log), limits).ok()) return;
  }
  ADD_FAILURE() << sm << ' ' << clauses;
}

void expect_kernels_without_spills(std::int64_t sm, std::span<const char* const> all,
                                   bool backward = false) {
  for (const char* clauses : all) {
    expect_a_kernel_without_spills(
        fmt::format("dims B = 2, Hq = 8, Hkv = 2, Skv = 1000, {}", clauses), sm, backward);
  }
}

// One of each form, rows and parts of them; the others, and other GPUs, are the night's.
constexpr const char* kForwards[] = {
    "Sq = 1000, D = 64; dropout 0.1; mask q_idx >= kv_idx;",
    "Sq = 1, D = 128; lengths kv; layout q: bshd, k: paged(page = 16), v: paged(page = 16), "
    "o: bshd;",
    "Sq = 1000, D = 128; dtype f16; score 30.0 * tanh(score / 30.0); mask q_idx >= kv_idx;",
    "Sq = 1000, D = 256; tensor t: bf16[Hq, Sq, Skv]; score score + t[h, q_idx, kv_idx];",
    "Sq = 1000, D = 128; dtype e4m3; quantize per_tensor; outputs o, amax_s, amax_o;",
    "Sq = 1000, D = 256; dtype e5m2; quantize per_tensor, o: bf16; mask q_idx >= kv_idx;",
    "Sq = 1000, D = 100; mask q_idx >= kv_idx;",
    "Sq = 1000, D = 255; lengths q, kv;",
    "Sq = 1, D = 128; dtype bf16, k: e4m3, v: i8; quantize kv(token); lengths kv;"};

TEST(NativeOfWarps, KernelsDoNotSpill) {
  expect_kernels_without_spills(80, std::span(kForwards).first(2));
}
TEST(NightlyNativeOfWarps, KernelsDoNotSpill) {
  for (const std::int64_t sm : {80, 86, 89, 100, 120}) expect_kernels_without_spills(sm, kForwards);
}

TEST(NativeOfWarps, BackwardsReadTensorsByTheirAddresses) {
  for (const std::int64_t sm : {80, 100}) {
    const NativeProgram made = lowered(kSizes, of_gpu(sm, true)).value();
    const plan::KernelStep& step = step_of(made);
    ASSERT_EQ(step.launches.size(), 3U);
    const plan::Launch& launch = step.launches[1];
    EXPECT_EQ(launch.kernel, "attn_backward");
    for (const plan::KernelArgument& argument : launch.arguments)
      EXPECT_FALSE(std::holds_alternative<plan::TensorMapArgument>(argument));
    EXPECT_THAT(step.source, AllOf(HasSubstr("#include \"attn/mma_backward.cuh\""),
                                   HasSubstr("kernels::backward_of_warps<Constants>"),
                                   HasSubstr("kOfWarps = true;"), Not(HasSubstr("TensorMap"))));
    // Vectors are added to memory by one instruction since 9.0.
    EXPECT_EQ(step.source.find("kScatters = true;") != step.source.npos, sm == 80);
    EXPECT_TRUE(made.work.of_warps);
  }
}

TEST(NativeOfWarps, TilesOfBackwardsFitSharedMemoryAndRegisters) {
  for (const std::int64_t sm : kGpus) {
    const target::Context context = of_gpu(sm, true);
    const std::int64_t most = limit(target::Capability::shared_bytes_of_block, context);
    for (std::int64_t depth = 8; depth <= native::kMostDepthOfWarps; depth += 8) {
      const ir::Attention attention =
          of(fmt::format("dims B = 1, Hq = 2, Sq = 512, Skv = 512, D = {};", depth));
      const auto tiles = native::row_tiles(attention, context, true);
      ASSERT_FALSE(tiles.empty()) << sm << ' ' << depth;
      for (const native::RowTile& tile : tiles) {
        EXPECT_TRUE(tile.of_warps);
        EXPECT_LE(tile.warps(), 8);  // kPartsOfBlock
        EXPECT_LE(tile.resident * (shared_bytes(attention, tile, false, true) + 1024), most + 1024);
        const std::int64_t sums = (tile.depth + tile.width) / 2 / tile.row_groups;
        const std::int64_t registers = std::min(255L, 65536 / (tile.threads() * tile.resident));
        EXPECT_LE(sums + tile.rows / tile.row_groups, registers - 40);
        EXPECT_EQ(tile.depth / tile.row_groups % tile.depth_panel(), 0) << depth;
      }
    }
  }
}

constexpr const char* kBackwards[] = {
    "Sq = 1000, D = 64; dropout 0.1; mask q_idx >= kv_idx;",
    "Sq = 1000, D = 128; dtype f16; score 30.0 * tanh(score / 30.0); mask q_idx >= kv_idx;",
    "Sq = 1000, D = 256; tensor t: bf16[Hq, Sq, Skv]; score score + t[h, q_idx, kv_idx];",
    "Sq = 1000, D = 96; learn t: f32[Hq, 1999]; score score + t[h, q_idx - kv_idx + 999];",
    "Sq = 1000, D = 101; mask q_idx >= kv_idx;",
    "Sq = 1000, Dqk = 255, Dv = 190; lengths q, kv;",
    "Sq = 1000, D = 128; dtype e4m3; quantize per_tensor; grad q, k, v; mask q_idx >= kv_idx;"};

TEST(NativeOfWarps, BackwardsDoNotSpill) {
  expect_kernels_without_spills(89, std::span(kBackwards).first(1), true);
}
TEST(NightlyNativeOfWarps, BackwardsDoNotSpill) {
  for (const std::int64_t sm : {80, 86, 89, 100, 120}) {
    expect_kernels_without_spills(sm, kBackwards, true);
  }
}

}  // namespace
}  // namespace attn::engines::warps_tests
