#include "compiler/engines/shared/cost.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/target/gpu.h"
#include "runtime/targets/targets.h"
#include "tests/support/contexts.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines {
namespace {

double ms(const std::string& clauses, bool backward = false, std::int64_t classes = 1,
          const target::Gpu& gpu = {}) {
  target::Context context = attn::testing::in(backward);
  context.gpu = gpu;
  return predicted_ms(
      masks::testing::of_spec(
          "attention a { dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = 4096, D = 128; " + clauses +
          " }"),
      context, classes);
}

TEST(Cost, OfWhatWasMeasured) {  // docs/benchmark.md
  EXPECT_NEAR(ms(""), 1.603, 0.1);
  EXPECT_NEAR(ms("mask q_idx >= kv_idx;"), 0.897, 0.1);
  EXPECT_NEAR(ms("", true), 4.77, 0.6);
  EXPECT_NEAR(ms("mask q_idx >= kv_idx;", true), 2.72, 0.4);
}

// docs/cudnn.md: TFLOP/s of 16 heads.
double tflops_in_8_bits(std::int64_t size, std::int64_t depth, bool causal, bool backward = false) {
  const std::string text = fmt::format(
      "attention a {{ dims B = 1, Hq = 16, Sq = {}, D = {}; dtype e4m3; quantize per_tensor; {} "
      "outputs o, lse; grad q, k, v; }}",
      size, depth, causal ? "mask q_idx >= kv_idx;" : "");
  const double ms = predicted_ms(masks::testing::of_spec(text), attn::testing::in(backward));
  const auto scores = static_cast<double>(size * size) * (causal ? 0.5 : 1);
  return (backward ? 10.0 : 4.0) * 16 * scores * static_cast<double>(depth) / ms * 1e-9;
}

TEST(Cost, In8BitsOfWhatWasMeasured) {
  EXPECT_NEAR(tflops_in_8_bits(16384, 128, false), 1031, 50);
  EXPECT_NEAR(tflops_in_8_bits(16384, 128, true), 951, 60);
  EXPECT_NEAR(tflops_in_8_bits(16384, 64, false), 568, 45);
  EXPECT_NEAR(tflops_in_8_bits(16384, 64, true), 532, 45);
  EXPECT_NEAR(tflops_in_8_bits(16384, 128, false, true), 726, 60);
  EXPECT_NEAR(tflops_in_8_bits(16384, 128, true, true), 716, 100);
}

TEST(Cost, BlocksOutsideOfABandAreSkipped) {
  const char* window = "mask abs(q_idx - kv_idx) < 256;";
  const char* causal_window = "mask q_idx >= kv_idx && q_idx - kv_idx < 256;";
  EXPECT_LT(ms(causal_window), ms(window));
  EXPECT_LT(ms(window), ms("mask q_idx >= kv_idx;"));
  EXPECT_LT(ms(causal_window, true), ms("mask q_idx >= kv_idx;", true));
  EXPECT_DOUBLE_EQ(ms(window, true), ms("", true));  // a backward does not
  EXPECT_LT(ms("mask q_idx - kv_idx < 256;"), ms(""));
}

TEST(Cost, OperationsOnScoresCount) {
  EXPECT_GT(ms("score 5 * tanh(score / 5);"), ms(""));
  EXPECT_GT(ms("mask q_idx // 64 == kv_idx // 32;"), ms(""));
  EXPECT_GT(ms("score 5 * tanh(score / 5);", true), ms("", true));
}

TEST(Cost, TensorsThatWereMeasured) {  // docs/cudnn.md
  EXPECT_NEAR(ms("tensor t: bf16[Sq, Skv]; score score + t[q_idx, kv_idx];"), 2.97, 0.4);
  EXPECT_NEAR(ms("tensor t: f32[B, Skv]; score score + t[b, kv_idx];"), 2.39, 0.3);
  EXPECT_NEAR(ms("tensor t: f32[B, Hq, Sq]; score score * t[b, h, q_idx];"), 1.74, 0.2);
  EXPECT_NEAR(ms("tensor t: i32[Sq]; tensor u: i32[Skv]; mask t[q_idx] == u[kv_idx];"), 2.57, 0.3);
  // Masks cost no more than a table of all of them.
  EXPECT_NEAR(ms("mask (q_idx * 7 + kv_idx * 3) % 11 < 5; mask (q_idx ^ kv_idx) % 13 < 9;"), 3.05,
              0.4);
}

TEST(Cost, ClassesAreFurtherBatches) {
  const double begin_and_end = 2 * ms("", false, 1) - ms("", false, 2);
  EXPECT_GT(begin_and_end, 0);
  EXPECT_NEAR(ms("", false, 3), 3 * ms("") - 2 * begin_and_end, 1e-2);
}

TEST(Cost, OfMoving) {
  const double launch = predicted_ms_of_moving(0, {});
  EXPECT_GT(launch, 0);
  EXPECT_NEAR(predicted_ms_of_moving(3e9, {}) - launch, 1, 0.5);  // of some 4.8e12 bytes a second
}

// Rates for head dimensions from 32 to 512, and of what is moved, on each GPU.
TEST(Cost, NothingExceedsTheGpusOwnRates) {
  for (const std::string& name : targets::target_names()) {
    const target::Gpu gpu = target::gpu_of(targets::find_target(name).value());
    EXPECT_GE(predicted_ms_of_moving(1e9, gpu), 1e9 / (gpu.bandwidth * 1e6)) << name;
    for (const std::int64_t d : {32, 64, 128, 256, 512}) {
      for (const bool backward : {false, true}) {
        target::Context context = attn::testing::in(backward);
        context.gpu = gpu;
        const double flop = (backward ? 10.0 : 4.0) * 4 * 32 * 4096 * 4096 * static_cast<double>(d);
        for (const char* type : {"bf16", "e4m3; quantize per_tensor"}) {
          const ir::Attention attention = masks::testing::of_spec(
              fmt::format("attention a {{ dims B = 4, Hq = 32, Sq = 4096, Skv = 4096, D = {}; "
                          "dtype {}; }}",
                          d, type));
          EXPECT_LE(flop / predicted_ms(attention, context) * 1e-9, gpu.rate(attention.dtype))
              << name << ' ' << d << ' ' << backward << ' ' << type;
        }
      }
    }
  }
}

TEST(Cost, ASlowerGpuTakesLonger) {
  const auto of = [](const char* name) {
    return ms("score 5 * tanh(score / 5);", false, 1,
              target::gpu_of(targets::find_target(name).value()));
  };
  EXPECT_DOUBLE_EQ(of("h200"), ms("score 5 * tanh(score / 5);"));
  EXPECT_DOUBLE_EQ(of("h100"), of("h200"));  // by its matrix rate
  EXPECT_GT(of("a100"), 2 * of("h200"));
  EXPECT_GT(of("l40s"), 1.5 * of("h200"));  // products, 2.7 times as long, hide its other work
  EXPECT_LT(of("b200"), of("h200"));
}

}  // namespace
}  // namespace attn::engines
