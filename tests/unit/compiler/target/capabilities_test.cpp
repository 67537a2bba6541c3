#include "compiler/target/capabilities.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/driver/driver.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/rewrite/ranged.h"
#include "runtime/plan/step_tensors.h"
#include "tests/support/contexts.h"

namespace attn::target {
namespace {

using ::testing::HasSubstr;

ir::Attention attention_of(const std::string& clauses) {
  const support::Source source("f.attn", "attention f { " + clauses + " }");
  diag::Sink sink(source);
  std::optional<ir::Attention> attention = driver::front_end(source, {}, sink);
  EXPECT_TRUE(attention.has_value()) << diag::to_text(sink);
  return attention.value_or(ir::Attention());
}

constexpr const char* kSizes = "dims B = 2, Hq = 4, Hkv = 2, Sq = 128, Skv = 256, D = 64; ";

// The strategy's refusal; empty where it serves.
std::string refusal(const std::string& clauses, const char* strategy, bool backward = false) {
  const auto program = driver::lower(attention_of(clauses), strategy, attn::testing::in(backward));
  return program.ok() ? "" : program.error().message;
}

// What relies on a row, with the row's own value: one for each, or this does not link.
void show_pages_of_any_size() {
  const auto paged = [](int rows) {
    const std::string page = "paged(page = " + std::to_string(rows) + ")";
    return kSizes + ("layout q: bshd, k: " + page + ", v: " + page + ", o: bshd; lengths kv;");
  };
  EXPECT_THAT(refusal(paged(48), "composite"), HasSubstr("a power of two"));
  EXPECT_EQ(refusal(paged(32), "composite"), "");
}
void show_pages_of_any_number_of_keys() {
  const auto paged = [](int rows, int keys) {
    return fmt::format(
        "dims B = 2, Hq = 2, Sq = {}, Skv = {}, D = 64; layout q: bshd, k: paged(page = 32), "
        "v: paged(page = 32), o: bshd; lengths kv;",
        rows, keys);
  };
  EXPECT_THAT(refusal(paged(2, 448), "composite"), HasSubstr("values past Skv"));
  EXPECT_EQ(refusal(paged(2, 512), "composite"), "");
  EXPECT_EQ(refusal(paged(1, 448), "composite"), "");
}
void show_ignores_pages_past_lengths() {
  const ir::Attention paged =
      attention_of(std::string(kSizes) +
                   "layout q: bshd, k: paged(page = 32), v: paged(page = 32), o: bshd; "
                   "lengths kv;");
  const auto program = driver::lower(paged, "composite", attn::testing::in(false)).value();
  for (const plan::Step& step : program.steps) {
    if (!std::holds_alternative<plan::CudnnStep>(step)) continue;
    EXPECT_FALSE(plan::uses(step, "page_table"));
    EXPECT_TRUE(plan::uses(step, "page_table.own"));
  }
}
void show_backward_of_pages() {
  const std::string blocks =
      "dims B = 1, Hq = 1, Sq = 4096, D = 64; tensor m: bool[32, 32]; "
      "mask m[q_idx // 128, kv_idx // 128];";
  EXPECT_EQ(refusal(blocks, "block_sparse"), "");
  EXPECT_THAT(refusal(blocks, "block_sparse", true),
              HasSubstr("backward cannot skip blocks by a list"));
}
void show_unified_backward() {
  EXPECT_EQ(refusal(kSizes, "unified"), "");
  EXPECT_THAT(refusal(kSizes, "unified", true), HasSubstr("no backward"));
}
void show_statistics_beside_sink() {
  const std::string max = std::string(kSizes) + "outputs o, max; ";
  EXPECT_EQ(refusal(max, "composite"), "");
  EXPECT_THAT(refusal(max + "tensor s: f32[Hq]; sink s[h];", "composite"), HasSubstr("sink"));
}
void show_deterministic_lse_of_one_row() {
  const auto rows = [](int count) {
    return "dims B = 2, Hq = 4, Sq = " + std::to_string(count) +
           ", Skv = 192, D = 64; deterministic; outputs o, lse;";
  };
  EXPECT_EQ(refusal(rows(2), "composite"), "");
  EXPECT_THAT(refusal(rows(1), "composite"), HasSubstr("lse varies between runs"));
}
void show_backward_skips_right_of_diagonal() {
  const ir::Attention blocks =
      attention_of("dims B = 1, Hq = 1, Sq = 4096, D = 64; mask q_idx // 64 == kv_idx // 64;");
  const auto band = [&blocks](bool backward) {
    const target::Context context = attn::testing::in(backward);
    return masks::analyzed(rewrite::with_bounding_band(blocks, context), context)->form().band;
  };
  EXPECT_EQ(band(false).right, 63);
  EXPECT_EQ(band(true).right, std::nullopt);
}
void show_most_batches() {
  const auto tiles = [](int batches) {
    return "dims B = " + std::to_string(batches) +
           ", Hq = 1, Sq = 4096, D = 64; tensor m: bool[32, 32]; "
           "mask m[q_idx // 128, kv_idx // 128];";
  };
  EXPECT_EQ(refusal(tiles(2047), "block_sparse"), "");
  EXPECT_THAT(refusal(tiles(2048), "block_sparse"), HasSubstr("exceed the batch limit"));
}
void show_warp_group_products() {
  for (const std::int64_t sm : {80, 90, 100, 120}) {
    target::Context context = attn::testing::in(false);
    context.gpu.sm = sm;
    const auto program = driver::lower(attention_of(kSizes), "native", context);
    ASSERT_TRUE(program.ok()) << sm;
    const auto& step = std::get<plan::KernelStep>(program->steps.back());
    EXPECT_EQ(step.source.find("forward_of_warps") == step.source.npos, sm == 90) << sm;
  }
}
void show_warp_products() {
  target::Context context = attn::testing::in(false);
  for (const std::int64_t sm : {70, 75, 80, 121}) {
    context.gpu.sm = sm;
    EXPECT_EQ(driver::lower(attention_of(kSizes), "native", context).ok(), sm >= 80) << sm;
  }
}
void show_vector_sums() {
  for (const std::int64_t sm : {80, 90, 120}) {
    target::Context context = attn::testing::in(true);
    context.gpu.sm = sm;
    context.rewrites.warp_groups = false;
    const auto program = driver::lower(attention_of(kSizes), "native", context);
    ASSERT_TRUE(program.ok()) << sm;
    const auto& step = std::get<plan::KernelStep>(program->steps.back());
    EXPECT_EQ(step.source.find("kScatters = true") == step.source.npos, sm >= 90) << sm;
  }
}
void show_shared_bytes_of_block() {
  for (const std::int64_t sm : {80, 86, 87, 89, 100, 103, 120, 121}) {
    target::Context context = attn::testing::in(false);
    context.gpu.sm = sm;
    const auto program = driver::lower(attention_of(kSizes), "native", context);
    ASSERT_TRUE(program.ok()) << sm;
    const auto& step = std::get<plan::KernelStep>(program->steps.back());
    const bool small = sm == 86 || sm == 89 || sm >= 120;
    EXPECT_LE(step.launches[0].shared_bytes, small ? 99 << 10 : 163 << 10) << sm;
  }
}

constexpr const char* kEight = "dtype e4m3; quantize per_tensor; ";

// Why 8-bit attention with these clauses is refused; empty where it is not.
std::string refusal_of_8_bits(const std::string& clauses, std::int64_t sm) {
  target::Context context = attn::testing::in(false);
  context.gpu.sm = sm;
  const auto program = driver::lower(attention_of(kEight + clauses), "composite", context);
  return program.ok() ? "" : program.error().message;
}
void show_fp8_attention() {
  EXPECT_EQ(refusal_of_8_bits(kSizes, 90), "");
  EXPECT_EQ(refusal_of_8_bits(kSizes, 120), "");
  EXPECT_THAT(refusal_of_8_bits(kSizes, 89), HasSubstr("compute capability 9.0"));
  EXPECT_THAT(refusal_of_8_bits(kSizes, 121),
              HasSubstr("no 8-bit attention for compute capability 12.1"));
}
void show_fp8_half_output() {
  const std::string half = std::string("dtype e4m3; quantize per_tensor, o: bf16; ") + kSizes;
  const auto refused = [&](std::int64_t sm) {
    target::Context context = attn::testing::in(false);
    context.gpu.sm = sm;
    return !driver::lower(attention_of(half), "composite", context).ok();
  };
  EXPECT_TRUE(refused(90) && !refused(100) && refused(120));
}
void show_fp8_bottom_right() {
  const std::string ends =
      std::string(kSizes) + "lengths q, kv; align bottom_right; mask q_idx >= kv_idx;";
  EXPECT_THAT(refusal_of_8_bits(ends, 90), HasSubstr("last key"));
  EXPECT_EQ(refusal_of_8_bits(ends, 100), "");
}
void show_fp8_ragged() {
  const std::string ragged = std::string(kSizes) + "layout thd;";
  EXPECT_EQ(refusal_of_8_bits(ragged, 90), "");
  EXPECT_THAT(refusal_of_8_bits(ragged, 120), HasSubstr("`thd`"));
}
std::string sizes_of_depth(int of_q, int of_v) {
  return "dims B = 2, Hq = 4, Sq = 128, Dqk = " + std::to_string(of_q) +
         ", Dv = " + std::to_string(of_v) + "; ";
}
void show_fp8_depth() {
  EXPECT_EQ(refusal_of_8_bits(sizes_of_depth(256, 256), 90), "");
  EXPECT_THAT(refusal_of_8_bits(sizes_of_depth(272, 64), 90), HasSubstr("at most 256"));
  EXPECT_EQ(refusal_of_8_bits(sizes_of_depth(256, 256), 100), "");
  EXPECT_THAT(refusal_of_8_bits(sizes_of_depth(192, 128), 120), HasSubstr("at most 128"));
}
// The same for the backward.
std::string refusal_of_8_bits_backward(const std::string& clauses, std::int64_t sm) {
  target::Context context = attn::testing::in(true);
  context.gpu.sm = sm;
  const auto program =
      driver::lower(attention_of(kEight + clauses + "grad q, k, v;"), "composite", context);
  return program.ok() ? "" : program.error().message;
}
constexpr const char* kTrained = "dims B = 2, Hq = 4, Hkv = 2, Sq = 128, Skv = 256, D = 128; ";
void show_fp8_backward() {
  EXPECT_EQ(refusal_of_8_bits_backward(kTrained, 90), "");
  EXPECT_EQ(refusal_of_8_bits_backward(kTrained, 100), "");
  EXPECT_THAT(refusal_of_8_bits_backward(kTrained, 120), HasSubstr("is missing"));
  const std::string trained = kTrained;
  EXPECT_THAT(refusal_of_8_bits_backward(trained + "dropout 0.1;", 90), HasSubstr("dropout"));
  EXPECT_THAT(refusal_of_8_bits_backward(trained + "deterministic;", 90),
              HasSubstr("not known to be the same"));
  const std::string odd = "dims B = 2, Hq = 4, Sq = 100, D = 128; ";
  EXPECT_THAT(refusal_of_8_bits_backward(odd, 90), HasSubstr("multiples of 128"));
  EXPECT_THAT(refusal_of_8_bits_backward(odd, 100), HasSubstr("multiples of 128"));
}
void show_fp8_backward_least_depth() {
  const std::string of_64 = sizes_of_depth(64, 64);
  EXPECT_THAT(refusal_of_8_bits_backward(of_64, 90), HasSubstr("head dimensions of 128"));
  EXPECT_EQ(refusal_of_8_bits_backward(of_64, 100), "");
  EXPECT_THAT(refusal_of_8_bits_backward(sizes_of_depth(192, 128), 100), HasSubstr("at most 128"));
}
void show_fp8_backward_ragged() {
  const std::string ragged = std::string(kTrained) + "layout thd;";
  EXPECT_THAT(refusal_of_8_bits_backward(ragged, 90), HasSubstr("`thd`"));
  EXPECT_EQ(refusal_of_8_bits_backward(ragged, 100), "");
}
void show_mxfp8_attention() {
  const auto refusal = [](const std::string& clauses, bool backward, std::int64_t sm) {
    target::Context context = attn::testing::in(backward);
    context.gpu.sm = sm;
    const std::string blocks = "dtype e4m3; quantize mxfp8; grad q, k, v; ";
    const auto program = driver::lower(attention_of(blocks + clauses), "composite", context);
    return program.ok() ? "" : program.error().message;
  };
  for (const bool backward : {false, true}) {
    EXPECT_EQ(refusal(kTrained, backward, 100), "");
    for (const std::int64_t sm : {80, 89, 90, 110, 120}) {
      EXPECT_THAT(refusal(kTrained, backward, sm), HasSubstr("compute capability 10.x")) << sm;
    }
  }
  EXPECT_EQ(refusal(sizes_of_depth(192, 128), false, 103), "");
  EXPECT_THAT(refusal(sizes_of_depth(256, 256), false, 100), HasSubstr("or 192 with 128"));
}
void show_fp8_scores() {
  for (const std::int64_t sm : {90, 100}) {
    const std::string capped = std::string(kSizes) + "score 20 * tanh(score / 20);";
    EXPECT_THAT(refusal_of_8_bits(capped, sm), HasSubstr("score expressions"));
    const std::string documents =
        std::string(kSizes) + "tensor d: i32[B, Skv]; mask d[b, q_idx] == d[b, kv_idx];";
    EXPECT_THAT(refusal_of_8_bits(documents, sm), HasSubstr("other masks than bands"));
    EXPECT_EQ(refusal_of_8_bits(std::string(kSizes) + "mask q_idx >= kv_idx;", sm), "");
  }
}
void show_fp8_lengths() {
  const std::string lengths = std::string(kSizes) + "lengths q, kv;";
  EXPECT_THAT(refusal_of_8_bits(lengths, 90), HasSubstr("`lengths`"));
  EXPECT_EQ(refusal_of_8_bits(lengths, 100), "");
}
void show_fp8_statistics() {
  const std::string statistics = std::string(kSizes) + "outputs o, lse, max, sum_exp;";
  EXPECT_THAT(refusal_of_8_bits(statistics, 90), HasSubstr("`max` and `sum_exp`"));
  EXPECT_EQ(refusal_of_8_bits(statistics, 100), "");
}
void show_fp8_dropout() {
  EXPECT_THAT(refusal_of_8_bits(std::string(kSizes) + "dropout 0.1;", 90), HasSubstr("dropout"));
}

// Kernels read scales from device memory, so that a captured CUDA graph follows those that change.
TEST(Capabilities, ScalesOf8BitsAreDeviceTensors) {
  for (const char* way : {"per_tensor", "mxfp8"}) {
    const ir::Attention attention =
        attention_of(fmt::format("dtype e4m3; quantize {}; {} grad q, k, v;", way, kTrained));
    for (const bool backward : {false, true}) {
      target::Context context = attn::testing::in(backward);
      context.gpu.sm = 100;
      const auto program = driver::lower(attention, "composite", context);
      ASSERT_TRUE(program.ok()) << program.error().to_text();
      EXPECT_TRUE(program->params.empty());
      int scales = 0;
      for (const graph::Tensor& tensor :
           plan::steps_of<plan::CudnnStep>(*program)[0]->graph.tensors) {
        if (!ir::is_scale(tensor.name)) continue;
        ++scales;
        EXPECT_EQ(tensor.storage, graph::Storage::device) << tensor.name;
      }
      EXPECT_GE(scales, 3) << way << ' ' << backward;
    }
  }
}

// The rules of 8 bits are for 8 bits alone: the same in bf16 is served.
TEST(Capabilities, OfEightBitsAreNotThoseOfOthers) {
  for (const std::int64_t sm : {80, 89, 90, 100, 120}) {
    target::Context context = attn::testing::in(false);
    context.gpu.sm = sm;
    for (const char* clause :
         {"", "score 20 * tanh(score / 20);", "lengths q, kv;", "layout thd;", "dropout 0.1;",
          "outputs o, max, sum_exp;", "lengths q, kv; align bottom_right; mask q_idx >= kv_idx;"}) {
      const auto program =
          driver::lower(attention_of(std::string(kSizes) + clause), "composite", context);
      EXPECT_TRUE(program.ok()) << sm << ' ' << clause;
    }
  }
}

#define ATTN_CAPABILITY(name, ...) \
  TEST(Capabilities, name) { show_##name(); }
#include "compiler/target/capabilities.def"

TEST(Capabilities, HoldForEveryGpuAndVersion) {
  for (const std::int64_t sm : {80, 89, 90, 100, 120}) {
    for (const std::int64_t version : {0, 91000, 91900, 92800}) {
      Context context{.cudnn_version = version};
      context.gpu.sm = sm;
#define ATTN_CAPABILITY(name, ...) EXPECT_GE(limit(Capability::name, context), 0) << #name;
#include "compiler/target/capabilities.def"
    }
  }
}

}  // namespace
}  // namespace attn::target
