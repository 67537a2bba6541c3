// The backward of 8-bit attentions, and copies of rows that TMA does not read.
#include "compiler/engines/native/narrow_backward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/plan/step_tensors.h"
#include "tests/support/golden.h"
#include "tests/unit/compiler/engines/native/lowered.h"

namespace attn::engines::narrow_backward_tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using testing::kSizes;
using testing::map_of;
using ::testing::Not;
using testing::of;
using testing::step_of;

const std::string kQuantized = "dtype e4m3; quantize per_tensor; ";
const std::string kTrained = "grad q, k, v; ";

Result<NativeProgram> lowered(const std::string& clauses) {
  const ir::Attention attention = of(clauses);
  const masks::MaskAnalysis mask(attention, nullptr);
  const target::Context context = attn::testing::in(true);
  return NativePrograms(attention, masks::varying(mask.axes(), attention.dims), context).make();
}

std::string source_of(const std::string& clauses) {
  return step_of(lowered(clauses).value()).source;
}

std::string refusal(const std::string& clauses) {
  const Result<NativeProgram> made = lowered(clauses);
  return made.ok() ? "" : made.error().message;
}

std::vector<std::string> kernels_of(const NativeProgram& made) {
  std::vector<std::string> names;
  for (const plan::Launch& launch : step_of(made).launches) names.push_back(launch.kernel);
  return names;
}

std::vector<std::string> tensors_of(const NativeProgram& made) {
  std::vector<std::string> names;
  for (const plan::TensorInfo& tensor : made.program.tensors) names.push_back(tensor.name);
  return names;
}

TEST(NarrowBackward, WidensRowsBeforeProductsOf16Bits) {
  const NativeProgram made =
      lowered("dims B = 2, Hq = 8, Hkv = 2, Sq = 300, Skv = 400, D = 72; layout k: bhsd; " +
              kQuantized + kTrained)
          .value();
  EXPECT_THAT(kernels_of(made), ElementsAre("attn_prepare", "attn_backward", "attn_convert"));
  const plan::TensorMapArgument& queries = map_of(made, "native.rows");
  EXPECT_THAT(queries.dims, ElementsAre(72, 300, 8, 2)) << "rows of a head follow each other";
  EXPECT_THAT(queries.strides, ElementsAre(72, 72 * 300, 72 * 300 * 8));
  const auto rows =
      std::ranges::find(made.program.internals, "native.rows", &plan::TensorInfo::name);
  ASSERT_NE(rows, made.program.internals.end());
  EXPECT_EQ(rows->dtype, DType::bf16);
  EXPECT_GE(rows->dims[0], 2 * 2 * 8 * 300 * 72 + 2 * 2 * 2 * 400 * 72);
}

TEST(NarrowBackward, EachTensorHasItsPlace) {
  const ir::Attention attention = of(kSizes + kQuantized + kTrained);
  EXPECT_EQ(native::wide_rows(attention, "q").offset, 0);
  EXPECT_EQ(native::wide_rows(attention, "k").offset, 2 * 8 * 300 * 128);
  EXPECT_EQ(native::wide_rows(attention, "v").offset, 2 * 8 * 300 * 128 + 2 * 2 * 400 * 128);
  EXPECT_EQ(native::elements_of_wide_rows(attention), 2 * (2 * 8 * 300 + 2 * 2 * 400) * 128);
}

TEST(NarrowBackward, ReadsScalesOfTensors) {
  const NativeProgram made = lowered(kSizes + kQuantized + kTrained).value();
  EXPECT_THAT(tensors_of(made), IsSupersetOf({"descale_q", "descale_k", "descale_v", "descale_o",
                                              "descale_do", "scale_dq", "scale_dk", "scale_dv",
                                              "amax_dp", "amax_dq", "amax_dk", "amax_dv"}));
  for (const char* unread : {"scale_s", "descale_s", "scale_dp", "descale_dp", "scale_o"})
    EXPECT_EQ(std::ranges::count(tensors_of(made), unread), 0) << unread;
}

// Scales of 16-bit results do not exist.
TEST(NarrowBackward, ResultsOf16BitsHaveNoScales) {
  const std::string source =
      source_of(kSizes + ("dtype e4m3; quantize per_tensor, o: bf16, do: e5m2, gradients: bf16; " +
                          kTrained));
  EXPECT_THAT(source, HasSubstr("using NarrowGradient = kernels::E5M2;"));
  EXPECT_THAT(source, HasSubstr("using Gradient = kernels::BF16;"));
  EXPECT_THAT(source, HasSubstr("float scale_dq() const { return 1.0f; }"));
  EXPECT_THAT(source, HasSubstr("return *t_descale_v == 0 ? 0.0f : 1.0f / *t_descale_v; }"));
}

TEST(NarrowBackward, TextOfACausalMask) {
  attn::testing::expect_golden(
      "tests/golden/native/narrow_backward.cu",
      source_of(kSizes + kQuantized + "mask q_idx >= kv_idx; " + kTrained));
}

TEST(NarrowBackward, OtherAttentionsHaveNothingOfIt) {
  EXPECT_THAT(source_of(kSizes + kTrained), Not(HasSubstr("kNarrow")));
}

TEST(NarrowBackward, CountsWhatWideningMoves) {
  const NativeProgram narrow = lowered(kSizes + kQuantized + kTrained).value();
  const NativeProgram wide = lowered(kSizes + kTrained).value();
  EXPECT_EQ(narrow.work.moved - wide.work.moved,
            3.0 * 2 * (8 * 300 + 2 * 400 + 2 * 400) * 128);  // do and o: as many as in 16 bits
}

TEST(NarrowBackward, SumsMayBeOrdered) {
  EXPECT_EQ(refusal(kSizes + kQuantized + kTrained + "deterministic;"), "");
}

TEST(NarrowBackward, RefusesWhatItCannotCompute) {
  const std::string dims = "dims B = 2, Hq = 4, Hkv = 2, Sq = 64, Skv = 64, ";
  EXPECT_EQ(refusal(dims + "D = 256; " + kQuantized + kTrained), "");
  EXPECT_THAT(refusal(dims + "D = 64; " + kQuantized), HasSubstr("only with a `grad` clause"));
  EXPECT_EQ(refusal(dims + "D = 60; " + kQuantized + kTrained), "");
  EXPECT_THAT(refusal(dims + "D = 264; " + kQuantized + kTrained),
              HasSubstr("no backward above D 256"));
  EXPECT_THAT(refusal(dims + "D = 64; dtype e4m3; quantize mxfp8; layout bhsd; " + kTrained),
              HasSubstr("no scales of blocks"));
  EXPECT_THAT(refusal(dims + "D = 64; layout paged(page = 16); grad q, v; " + kQuantized),
              HasSubstr("`v` is paged, and paged tensors have no gradient"));
}

TEST(NarrowBackward, MakesLargestSlopesForASinkAlone) {
  const NativeProgram made =
      lowered(kSizes + kQuantized + "learn z: f32[Hq]; sink z[h]; grad z; ").value();
  EXPECT_THAT(kernels_of(made), ElementsAre("attn_prepare", "attn_backward"));
}

TEST(NarrowBackward, CopiesRowsOfPages) {
  const NativeProgram made = lowered(
                                 "dims B = 2, Hq = 4, Hkv = 2, Sq = 64, Skv = 70, D = 72; "
                                 "layout paged(page = 7); grad q; " +
                                 kQuantized)
                                 .value();
  const plan::DeriveStep& copies =
      std::get<plan::DeriveStep>(made.program.steps[made.program.steps.size() - 2]);
  EXPECT_THAT(copies.outputs, ElementsAre("native.k_rows", "native.v_rows"));
  EXPECT_TRUE(plan::uses(made.program.steps.back(), "native.k_rows"));
  EXPECT_FALSE(plan::uses(made.program.steps.back(), "k"));
}

Result<NativeProgram> forward_of(const std::string& clauses) { return testing::lowered(clauses); }

TEST(PaddedRows, AreCopiedBesideValues) {
  const NativeProgram made =
      forward_of(
          "dims B = 2, Hq = 8, Hkv = 2, Sq = 300, Skv = 400, D = 72; layout q: thd, o: thd; " +
          kQuantized)
          .value();
  EXPECT_THAT(kernels_of(made), ElementsAre("attn_values", "attn_forward"));
  const plan::TensorMapArgument& keys = map_of(made, "native.padded_k");
  EXPECT_THAT(keys.dims, ElementsAre(80, 400, 2, 2));
  EXPECT_THAT(keys.strides, ElementsAre(80, 80 * 400, 80 * 400 * 2));
  EXPECT_TRUE(map_of(made, "native.padded_q").packed);
  const std::int64_t threads = (2 * 8 * 300 + 2 * 2 * 400) * 80 / 8;
  EXPECT_EQ(step_of(made).launches[0].grid[0], 4 * 2 * 2 + (threads + 255) / 256);
  EXPECT_EQ(made.work.moved, 2.0 * (2 * 2 * 400 * 72 + (2 * 8 * 300 + 2 * 2 * 400) * 80));
}

TEST(PaddedRows, KeysInPagesAreCopiedByTheirTable) {
  const std::string dims = "dims B = 2, Hq = 4, Hkv = 2, Sq = 64, Skv = 65, D = 72; ";
  const NativeProgram made =
      forward_of(dims + kQuantized + "layout k: paged(page = 16), v: paged(page = 7);").value();
  EXPECT_THAT(map_of(made, "native.padded_k").dims, ElementsAre(80, 65, 2, 2));
  EXPECT_THAT(step_of(made).source,
              HasSubstr("kernels::PagedPlaces<2304, 1152, 72, 1, 72, true, 16, 5>"));
  EXPECT_THAT(step_of(made).source, HasSubstr("padded_k, starts_of_k}"));
}

TEST(PaddedRows, OnePageTableServesKeysAndValues) {
  const std::string dims = "dims B = 2, Hq = 4, Hkv = 2, Sq = 64, Skv = 65, D = 64; ";
  const NativeProgram made = forward_of(dims + kQuantized + "layout paged(page = 12);").value();
  EXPECT_THAT(step_of(made).source, HasSubstr("padded_k, table}"));
}

TEST(PaddedRows, RowsAtBoundStridesAreRefused) {
  const std::string dims = "dims B = 2, Hq = 4, Hkv = 2, Sq = 64, Skv = 64, ";
  const auto refused = [&](const std::string& clauses) {
    return forward_of(dims + clauses + kQuantized).error().message;
  };
  EXPECT_THAT(refused("D = 72; layout paged(page = 16, strides = bound); "),
              HasSubstr("its rows of 72 bytes are not at multiples of 16"));
  EXPECT_THAT(refused("D = 64; layout paged(page = 12, strides = bound); "),
              HasSubstr("no pages of 12 keys whose strides are bound"));
}

}  // namespace
}  // namespace attn::engines::narrow_backward_tests
