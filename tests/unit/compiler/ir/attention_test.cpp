#include "compiler/ir/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/compiler/ir/sample.h"

namespace attn::ir {
namespace {

using testing::ElementsAre;

TEST(Names, ReadBack) {
  for (Dim dim : kDims) EXPECT_EQ(parse_dim(to_string(dim)), dim);
  EXPECT_FALSE(parse_dim("D"));
  for (LayoutKind kind :
       {LayoutKind::bshd, LayoutKind::bhsd, LayoutKind::sbhd, LayoutKind::strided, LayoutKind::thd,
        LayoutKind::paged, LayoutKind::packed_qkv, LayoutKind::packed_kv}) {
    EXPECT_EQ(parse_layout_kind(to_string(kind)), kind);
  }
  EXPECT_FALSE(parse_layout_kind("hsd"));
}

TEST(Dims, AreBoundWhenAllAre) {
  Dims dims;
  EXPECT_FALSE(dims.bound());
  for (Dim dim : kDims) dims.set(dim, 8);
  EXPECT_TRUE(dims.bound());
  dims.set(Dim::Sq, std::nullopt);
  EXPECT_FALSE(dims.bound());
}

TEST(Layout, Strides) {
  const std::array<std::int64_t, 4> dims = {2, 3, 5, 7};  // B H S D
  EXPECT_THAT(strides_of({LayoutKind::bshd, {}}, dims), ElementsAre(105, 7, 21, 1));
  EXPECT_THAT(strides_of({LayoutKind::bhsd, {}}, dims), ElementsAre(105, 35, 7, 1));
  EXPECT_THAT(strides_of({LayoutKind::sbhd, {}}, dims), ElementsAre(21, 7, 42, 1));
  EXPECT_THAT(strides_of({LayoutKind::strided, {9, 8, 7, 6}}, dims), ElementsAre(9, 8, 7, 6));
}

TEST(Attention, FindsAndLists) {
  const Result<Attention> parsed = parse(kSample);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->find_tensor("keep")->dtype, DType::boolean);
  EXPECT_EQ(parsed->find_tensor("cap"), nullptr);
  EXPECT_EQ(parsed->find_param("cap")->name, "cap");
  EXPECT_THAT(parsed->roots(), ElementsAre(7, 13, 17, 18, 0, 1, 1));
}

TEST(Attention, SourceNamesTheRowByAlignment) {
  Result<Attention> parsed = parse(kSample);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(to_source(*parsed, parsed->score), "where(q_raw >= kv_idx, tanh(score / cap), -inf)");
  parsed->align = Align::top_left;
  EXPECT_EQ(to_source(*parsed, parsed->score), "where(q_idx >= kv_idx, tanh(score / cap), -inf)");
  EXPECT_EQ(to_source(*parsed, parsed->masks[0]), "h == doc[b, kv_idx] || keep[kv_idx]");
}

TEST(ValueType, FollowsTheDtype) {
  EXPECT_EQ(value_type(DType::boolean), Type::boolean);
  EXPECT_EQ(value_type(DType::i64), Type::wide);
  EXPECT_EQ(value_type(DType::u8), Type::integer);
  EXPECT_EQ(value_type(DType::bf16), Type::real);
}

TEST(Dropout, RandomNumbersRoundTheProbability) {
  Dropout dropout;
  dropout.probability = 0.1;
  EXPECT_EQ(dropout.dropped(), 3277);
  EXPECT_EQ(dropout.exact_probability(), 3277.0 / 32768);
  dropout.probability = 0;
  EXPECT_EQ(dropout.dropped(), 0);
  dropout.probability = 0.999999;
  EXPECT_EQ(dropout.dropped(), 32767) << "something is kept";
  dropout.keep = ExprId{0};
  EXPECT_EQ(dropout.exact_probability(), 0.999999);
}

}  // namespace
}  // namespace attn::ir
