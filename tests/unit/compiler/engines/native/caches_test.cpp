// Programs of keys and values of 8 bits beside queries of 16 (attn/forward_widening.cuh).
#include "compiler/engines/native/caches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/engines/native/programs.h"
#include "compiler/engines/native/tiles.h"
#include "tests/unit/compiler/engines/native/lowered.h"

namespace attn::engines::caches_tests {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::of;
using testing::step_of;

const std::string kSizes = "dims B = 2, Hq = 8, Hkv = 2, Sq = 64, Skv = 512, D = 128; ";
const std::string kTypes = "dtype bf16, k: e4m3, v: i8; ";
const std::string kByHead = kSizes + kTypes + "quantize kv(head); ";

target::Context of_gpu(std::int64_t sm) {
  target::Context context = attn::testing::in(false);
  context.gpu.sm = sm;
  return context;
}

Result<NativeProgram> lowered(const std::string& clauses, std::int64_t sm = 90) {
  const ir::Attention attention = of(clauses);
  const target::Context context = of_gpu(sm);
  const masks::MaskAnalysis mask(attention, nullptr);
  return NativePrograms(attention, masks::varying(mask.axes(), attention.dims), context).make();
}

std::string refusal(const std::string& clauses, std::int64_t sm = 90) {
  const Result<NativeProgram> made = lowered(clauses, sm);
  EXPECT_FALSE(made.ok()) << clauses;
  return made.ok() ? "" : made.error().message;
}

TEST(NativeCaches, AreReadByTheirAddressesAndTypes) {
  const NativeProgram made = lowered(kByHead).value();
  const plan::KernelStep& step = step_of(made);
  EXPECT_THAT(step.source, HasSubstr("const unsigned char* k,"));
  EXPECT_THAT(step.source, HasSubstr("using Keys = kernels::E4M3;\n  using Values = kernels::I8;"));
  EXPECT_THAT(step.source, HasSubstr("bool kWidens = true;"));
  EXPECT_EQ(step.source.find("kTokenScales = true"), std::string::npos);
  const auto* k = std::get_if<plan::TensorOperand>(&step.launches.back().arguments[1]);
  ASSERT_NE(k, nullptr);
  EXPECT_EQ(k->name, "k");
}

TEST(NativeCaches, ScalesOfHeadsAreInTheQueriesAndTheEpilogue) {
  const ir::Attention scaled = native::with_scales_in_expressions(of(kByHead + "score score + 1;"));
  ASSERT_TRUE(scaled.cache->factor_of_queries);
  EXPECT_EQ(to_source(scaled, *scaled.cache->factor_of_queries), "k_scale[h // 4]");
  EXPECT_EQ(to_source(scaled, scaled.score), "score + 1.0");
  EXPECT_EQ(to_source(scaled, *scaled.epilogue), "o * v_scale[h // 4]");
  EXPECT_TRUE(verify(scaled).ok());
  EXPECT_EQ(native::product_type(scaled), DType::f16);
  const ir::Attention of_tensor =
      native::with_scales_in_expressions(of(kSizes + kTypes + "quantize kv(tensor);"));
  ASSERT_TRUE(of_tensor.cache->factor_of_queries);
  EXPECT_EQ(to_source(of_tensor, *of_tensor.cache->factor_of_queries), "k_scale[0]");
  const NativeProgram made = lowered(kByHead).value();
  EXPECT_THAT(step_of(made).source, HasSubstr("using Float = kernels::F16;"));
  EXPECT_THAT(step_of(made).source, HasSubstr("using Queries = kernels::BF16;"));
  EXPECT_THAT(step_of(made).source, HasSubstr("bool kConvertsQueries = true;"));
}

// They may exceed f16, or be lost in it.
TEST(NativeCaches, WeightsThatAreNoExponentialsTakeTheTypeOfQueries) {
  const ir::Attention scaled =
      native::with_scales_in_expressions(of(kByHead + "normalize sigmoid; score score + 1;"));
  EXPECT_FALSE(scaled.cache->factor_of_queries);
  EXPECT_EQ(to_source(scaled, scaled.score), "score * k_scale[h // 4] + 1.0");
  EXPECT_EQ(native::product_type(scaled), DType::bf16);
}

TEST(NativeCaches, TilesOfFewRowsLeaveOutTheOthers) {
  const std::string few = "dims B = 2, Hq = 8, Hkv = 2, Skv = 512, D = 128, Sq = ";
  const std::string rest = "; " + kTypes + "quantize kv(head); ";
  EXPECT_THAT(step_of(lowered(few + "2" + rest).value()).source,
              HasSubstr("bool kEightRows = true;"));
  EXPECT_EQ(step_of(lowered(few + "3" + rest).value()).source.find("kEightRows = true"),
            std::string::npos);
}

TEST(NativeCaches, ScalesOfTokensAreStoredAsRowsAre) {
  const NativeProgram made =
      lowered(kSizes + kTypes + "layout paged(page = 16); quantize kv(token); lengths kv;").value();
  EXPECT_THAT(step_of(made).source, HasSubstr("kTokenScales = true"));
  const plan::TensorInfo* scale = made.program.tensors.data();
  while (scale->name != "v_scale") ++scale;
  EXPECT_EQ(scale->dims, (std::vector<std::int64_t>{64, 1, 16}));
  EXPECT_EQ(scale->strides, (std::vector<std::int64_t>{16, 16, 1}));
  EXPECT_EQ(scale->addressed_by, "page_table");
}

TEST(NativeCaches, SayWhatTheyDoNotTake) {
  EXPECT_TRUE(lowered(kByHead, 80).ok());
  EXPECT_THAT(refusal(kByHead + "epilogue o * 2; outputs o, o_inner;", 80),
              HasSubstr("so `o_inner` is not known"));
  const std::string quantize = kTypes + "quantize kv(head); ";
  // Kernels of warps read such rows.
  EXPECT_TRUE(lowered("dims B = 1, Hq = 2, Sq = 64, Skv = 64, D = 72; " + quantize).ok());
  EXPECT_THAT(refusal("dims B = 1, Hq = 2, Sq = 64, Skv = 64, D = 272; " + quantize),
              HasSubstr("takes `k` of 8 bits with Dqk up to 256 (this is 272)"));
  EXPECT_THAT(refusal(kByHead + "epilogue o * 2; outputs o, o_inner;"),
              HasSubstr("so `o_inner` is not known"));
  EXPECT_THAT(refusal(kSizes + "dtype f16, k: e4m3, v: i8; quantize kv(token);"),
              HasSubstr("scale weights of each key in the type of q, and small ones are 0 in f16"));
  EXPECT_THAT(refusal(kSizes + kTypes +
                      "layout paged(page = 16, strides = bound); quantize kv(token); lengths kv;"),
              HasSubstr("scales of each key with strides that the layout of `k` states"));
}

}  // namespace
}  // namespace attn::engines::caches_tests
