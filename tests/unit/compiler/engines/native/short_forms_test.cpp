// Programs for few keys: backwards of one launch (attn/mma_short_backward.cuh), and forwards that
// walk items (attn/mma_walking.cuh).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/driver/driver.h"
#include "compiler/engines/native/programs.h"
#include "compiler/engines/native/row_tiles.h"
#include "tests/unit/compiler/engines/native/lowered.h"

namespace attn::engines::short_forms_tests {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::of;
using testing::step_of;

constexpr const char* kWindows = "dims B = 512, Hq = 3, Sq = 49, D = 32; ";
constexpr const char* kBias = "score score + bias[h, q_idx, kv_idx]; outputs o, lse; ";
const std::string kCaptured = std::string("tensor bias: bf16[Hq, Sq, Skv]; ") + kBias;
const std::string kLearned = std::string("learn bias: f32[Hq, Sq, Skv]; ") + kBias;

target::Context context_of(bool backward, target::Rewrites rewrites = {}) {
  target::Context context = attn::testing::in(backward);
  context.rewrites = rewrites;
  return context;
}

NativeProgram lowered(const std::string& clauses, const target::Context& context,
                      const NativePrograms::Prediction& predicted = {}) {
  const ir::Attention attention = of(clauses);
  const masks::MaskAnalysis mask(attention, nullptr);
  return NativePrograms(attention, masks::varying(mask.axes(), attention.dims), context)
      .make(0, predicted)
      .value();
}

std::vector<std::string> kernels_of(const NativeProgram& made) {
  std::vector<std::string> names;
  for (const plan::Launch& launch : step_of(made).launches) names.push_back(launch.kernel);
  return names;
}

TEST(NativeShortBackward, IsOneLaunchWithoutAWorkspace) {
  for (const std::int64_t sm : {80, 89, 90, 100, 120}) {
    target::Context context = context_of(true);
    context.gpu.sm = sm;
    const NativeProgram made = lowered(kWindows, context);
    EXPECT_THAT(kernels_of(made), ElementsAre("attn_short_backward")) << sm;
    EXPECT_THAT(made.program.internals, IsEmpty()) << sm;
    EXPECT_THAT(step_of(made).zeroed, IsEmpty()) << sm;
    EXPECT_THAT(step_of(made).outputs, ElementsAre("dq", "dk", "dv")) << sm;
    EXPECT_TRUE(made.work.is_short) << sm;
  }
}

// A bias that windows share is summed in registers, whichever reads of it there are; one of each
// window has nothing to sum, and rows in several blocks are no rows of one thread.
TEST(NativeShortBackward, SumsWhatBatchesShare) {
  const auto source = [](const std::string& clauses) {
    return step_of(lowered(clauses, context_of(true))).source;
  };
  EXPECT_THAT(source(kWindows + kLearned),
              AllOf(HasSubstr("kSummed = 1;"), HasSubstr("kBatchesFirst = true;"),
                    Not(HasSubstr("find_largest"))));
  EXPECT_THAT(source(std::string(kWindows) +
                     "learn near: f32[Hq, 9]; "
                     "tensor place: i32[Sq, Skv] = (i0 + i1) % 9; "
                     "score score + near[h, place[q_idx, kv_idx]]; outputs o, lse; "),
              HasSubstr("kSummed = 1;"));
  EXPECT_THAT(
      source(std::string(kWindows) + "learn bias: f32[B, Hq, Sq, Skv]; "
                                     "score score + bias[b, h, q_idx, kv_idx]; outputs o, lse; "),
      Not(HasSubstr("kSummed = ")));
  EXPECT_THAT(source("dims B = 512, Hq = 3, Sq = 80, D = 32; " + kLearned),
              Not(HasSubstr("kSummed = ")));
}

// Tables of 16 bits that batches have in common, whatever their rows are multiples of.
TEST(NativeShortBackward, HoldsATable) {
  EXPECT_THAT(step_of(lowered(kWindows + kCaptured, context_of(true))).source,
              AllOf(HasSubstr("kTable = true;"), HasSubstr("kTableRow = 49;")));
  EXPECT_THAT(step_of(lowered(kWindows + kLearned, context_of(true))).source,
              Not(HasSubstr("kTable = true;")));
}

TEST(NativeShortBackward, ComesWhereItIsPredictedToTakeLess) {
  const auto slow = [](const NativeWork& work) { return work.is_short ? 2.0 : 1.0; };
  const auto fast = [](const NativeWork& work) { return work.is_short ? 1.0 : 2.0; };
  EXPECT_FALSE(lowered(kWindows, context_of(true), slow).work.is_short);
  EXPECT_TRUE(lowered(kWindows, context_of(true), fast).work.is_short);
  target::Rewrites without;
  without.short_forms = false;
  EXPECT_FALSE(lowered(kWindows, context_of(true, without), fast).work.is_short);
}

TEST(NativeShortBackward, IsRefusedAloneWhereKeysAreMany) {
  target::Rewrites alone;
  alone.long_forms = false;
  const Result<plan::Program> made = driver::lower(
      of("dims B = 2, Hq = 3, Sq = 49, Skv = 129, D = 32;"), "native", context_of(true, alone));
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().to_text(),
              AllOf(HasSubstr("no tile of attnc's backward of one launch fits 129 keys, head "
                              "dimensions 32 and 32: with these, there are up to 128 keys"),
                    HasSubstr("leave out `--skeleton short`, which allows this form alone")));
}

TEST(NativeShortBackward, IsRefusedAloneFor8Bits) {
  target::Rewrites alone;
  alone.long_forms = false;
  const Result<plan::Program> made = driver::lower(
      of("dims B = 1, Hq = 2, Sq = 64, Skv = 64, D = 64; dtype e4m3; quantize per_tensor; "
         "grad q, k, v;"),
      "native", context_of(true, alone));
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().to_text(),
              AllOf(HasSubstr("attnc's backward of one launch computes no 8-bit floats"),
                    HasSubstr("leave out `--skeleton short`, which allows this form alone")));
}

// Items of few keys, or with a table that batches share; not beside masks that give items unequal
// blocks: other forms serve these.
TEST(NativeWalkingForward, IsForItemsThatAreAlike) {
  target::Rewrites alone;
  alone.long_forms = false;
  const auto walks = [&](const std::string& clauses) {
    const NativeProgram made = lowered(clauses, context_of(false, alone));
    return step_of(made).source.find("walking_forward") != std::string::npos;
  };
  EXPECT_TRUE(walks(kWindows));
  EXPECT_TRUE(walks(kWindows + kCaptured));
  EXPECT_TRUE(walks("dims B = 64, Hq = 4, Sq = 384, D = 32; " + kCaptured));
  EXPECT_FALSE(walks("dims B = 64, Hq = 4, Sq = 384, D = 32; mask q_idx >= kv_idx; " + kCaptured));
  EXPECT_FALSE(walks("dims B = 64, Hq = 4, Sq = 384, D = 32;"));
  EXPECT_FALSE(walks("dims B = 64, Hq = 4, Sq = 384, D = 128; " + kCaptured));
  EXPECT_FALSE(walks("dims B = 64, Hq = 4, Hkv = 2, Sq = 49, D = 32;"));
}

}  // namespace
}  // namespace attn::engines::short_forms_tests
