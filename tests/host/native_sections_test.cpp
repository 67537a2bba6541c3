// Kernels of the engine `native` that take their tiles in several sections (attn/sections.cuh), for
// a GPU that is so small that few heads keep it busy: outputs and gradients are the reference's.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/host/attention.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::host::native_sections_tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// 5 units (heads that share a tile, and heads of keys) of all batches, in sections of 4.
constexpr const char* kHeads = "B = 5, Hq = 8, Hkv = 1";

plan::Program on_small_gpu(const ir::Attention& attention, plan::Direction direction) {
  target::Context context;
  context.gpu.multiprocessors = 2;
  context.direction = direction;
  return driver::lower(attention, "native", context).value();
}

const std::string& text_of(const plan::Program& program) {
  return plan::steps_of<plan::KernelStep>(program).back()->source;
}

// The last units' tiles follow the shortest of the others.
TEST(HostNativeSections, ForwardAndBackwardAreTheReference) {
  const std::string text = fmt::format(
      "attention sections {{ dims {}, Sq = 160, Skv = Sq, D = 16; dtype bf16; "
      "mask q_idx >= kv_idx; outputs o, lse; grad q, k, v; }}",
      kHeads);
  Subject subject{text, driver::training_forward(masks::testing::of_spec(text)), {}};
  const auto backward = on_small_gpu(subject.attention, plan::Direction::backward);
  EXPECT_THAT(text_of(backward), AllOf(HasSubstr("kSection = 4;"), Not(HasSubstr("kDivided = "))));
  const auto forward = on_small_gpu(subject.attention, plan::Direction::forward);
  EXPECT_THAT(text_of(forward), AllOf(HasSubstr("kSection = 4;"), Not(HasSubstr("kFront"))));
  subject.pairs.push_back({"native", forward, backward});
  expect_reference({subject});
}

// Lists that the GPU makes: of 32 tiles, the longest of each unit is in the front.
TEST(HostNativeSections, AFrontIsTheReference) {
  const std::string text = fmt::format(
      "attention front {{ dims {}, Sq = 500, Skv = 200, D = 16; dtype bf16; "
      "tensor n: i32[B, Sq] = (i0 + i1 // 16 * 37) % 7 * 40 - 40; mask kv_idx < n[b, q_idx]; "
      "outputs o, lse; }}",
      kHeads);
  Subject subject{text, masks::testing::of_spec(text), {}};
  const auto forward = on_small_gpu(subject.attention, plan::Direction::forward);
  EXPECT_THAT(text_of(forward), AllOf(HasSubstr("kSection = 4;"), HasSubstr("kFront = 1;"),
                                      HasSubstr("kTiles = 32;")));
  subject.pairs.push_back({"native", forward, {}});
  expect_reference({subject});
}

}  // namespace
}  // namespace attn::host::native_sections_tests
