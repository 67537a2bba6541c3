#include "compiler/engines/cudnn/captured_view.h"

#include <gmock/gmock.h>

#include "tests/unit/compiler/engines/example.h"

namespace attn::engines {
namespace {

using ir::ExprId;
using ir::Op;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CapturedViewTest : public ::testing::Test {
 protected:
  Result<CapturedView> view(DType dtype, std::initializer_list<std::int64_t> extents,
                            std::initializer_list<ExprId> indices) {
    std::vector<ExprId> sizes;
    for (const std::int64_t extent : extents) sizes.push_back(dag_.integer(extent));
    attention_.tensors = {{"t", dtype, sizes, {}}};
    const std::vector<ExprId> ids(indices);
    return captured_view(attention_,
                         dag_.add_symbol(Op::load_, "t", ir::value_type(dtype), ids, {5, 9}));
  }
  std::string refusal(const Result<CapturedView>& result) {
    return result.ok() ? "accepted" : result.error().to_text();
  }

  ir::Attention attention_ = testing::example();
  ir::Dag& dag_ = attention_.dag;
  ExprId b_ = dag_.leaf(Op::batch_);
  ExprId h_ = dag_.leaf(Op::head_);
  ExprId row_ = dag_.leaf(Op::row_);
  ExprId column_ = dag_.leaf(Op::column_);
};

TEST_F(CapturedViewTest, AxesThatNoIndexNamesHaveSizeOne) {
  const auto slopes = view(DType::f32, {8}, {h_});
  ASSERT_TRUE(slopes.ok());
  EXPECT_THAT(slopes->dims, ElementsAre(1, 8, 1, 1));
  EXPECT_EQ(slopes->strides[1], 1);
}

TEST_F(CapturedViewTest, AFullBiasKeepsItsStrides) {
  const auto bias = view(DType::bf16, {2, 128, 256}, {b_, row_, column_});
  ASSERT_TRUE(bias.ok());
  EXPECT_THAT(bias->dims, ElementsAre(2, 1, 128, 256));
  EXPECT_EQ(bias->strides[0], 128 * 256);
  EXPECT_EQ(bias->strides[2], 256);
  EXPECT_EQ(bias->strides[3], 1);
}

TEST_F(CapturedViewTest, ALargerTensorIsReadByItsOwnStrides) {
  const auto vector = view(DType::i32, {2, 8192}, {b_, column_});
  ASSERT_TRUE(vector.ok());
  EXPECT_THAT(vector->dims, ElementsAre(2, 1, 1, 256));
  EXPECT_EQ(vector->strides[0], 8192);
}

// A guard keeps the reads inside the tensor; the kernel would read the whole dimension.
TEST_F(CapturedViewTest, TooSmallIsNotReadInTheKernel) {
  const auto vector = view(DType::i32, {100}, {column_});
  ASSERT_FALSE(vector.ok());
  EXPECT_EQ(vector.error().code, ErrorCode::unsupported);
  EXPECT_NE(vector.error().payload, "");
}

TEST_F(CapturedViewTest, BatchAloneIsRepeatedForEveryRow) {
  const auto by_batch = view(DType::f32, {2}, {b_});
  ASSERT_TRUE(by_batch.ok());
  EXPECT_THAT(by_batch->dims, ElementsAre(2, 1, 128, 1));
  EXPECT_EQ(by_batch->strides[0], 1);
  EXPECT_EQ(by_batch->strides[2], 0);
  const auto by_batch_and_head = view(DType::f32, {2, 8}, {b_, h_});
  ASSERT_TRUE(by_batch_and_head.ok());
  EXPECT_THAT(by_batch_and_head->dims, ElementsAre(2, 8, 128, 1));
  EXPECT_THAT(by_batch_and_head->strides, ElementsAre(8, 1, 0, 1));
}

TEST_F(CapturedViewTest, BatchAndHeadAloneAreRefusedForASingleRow) {
  attention_.dims.set(ir::Dim::Sq, 1);
  EXPECT_THAT(refusal(view(DType::f32, {2, 8, 1}, {b_, h_, row_})), HasSubstr("wrong values"));
  EXPECT_TRUE(view(DType::f32, {2, 1}, {b_, row_}).ok());
  EXPECT_TRUE(view(DType::f32, {2, 8, 256}, {b_, h_, column_}).ok());
}

TEST_F(CapturedViewTest, ColumnsMustBeAdjacent) {
  EXPECT_THAT(refusal(view(DType::f32, {256, 128}, {column_, row_})), HasSubstr("its last"));
}

TEST_F(CapturedViewTest, ColumnsOfASingleRowMustBeAdjacentToo) {
  EXPECT_TRUE(view(DType::bf16, {256, 8}, {column_, h_}).ok());
  attention_.dims.set(ir::Dim::Sq, 1);
  EXPECT_THAT(refusal(view(DType::bf16, {256, 8}, {column_, h_})), HasSubstr("its last"));
}

TEST_F(CapturedViewTest, TypesThatKillTheProcessAreRefused) {
  for (const DType dtype : {DType::boolean, DType::i8, DType::u8, DType::i64}) {
    EXPECT_THAT(refusal(view(dtype, {256}, {column_})), HasSubstr("cannot read"));
  }
}

TEST_F(CapturedViewTest, OtherIndicesAreRefusedWithTheirPlace) {
  const auto index = dag_.add(Op::add_, {row_, dag_.integer(1)}, {4, 2});
  const auto result = view(DType::f32, {256}, {index});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().payload, R"({"line": 4, "column": 2})");
  EXPECT_THAT(refusal(view(DType::f32, {256, 256}, {row_, row_})), HasSubstr("twice"));
}

TEST_F(CapturedViewTest, ABackwardReadsColumnsByRows) {
  const Dims4 scores{2, 8, 128, 256};
  const auto by_rows = [&](const Result<CapturedView>& of) { return read_by_rows(*of, scores); };
  const CapturedView columns = by_rows(view(DType::i32, {2, 256}, {b_, column_}));
  EXPECT_THAT(columns.dims, ElementsAre(2, 1, 128, 256));
  EXPECT_THAT(columns.strides, ElementsAre(256, ::testing::_, 0, 1));
  // Tensors that vary with rows, or with neither, do not change.
  for (const auto& kept :
       {view(DType::f32, {8}, {h_}), view(DType::f32, {128}, {row_}), view(DType::f32, {2}, {b_}),
        view(DType::f32, {128, 256}, {row_, column_})}) {
    EXPECT_EQ(by_rows(kept).dims, kept->dims);
    EXPECT_EQ(by_rows(kept).strides, kept->strides);
  }
}

}  // namespace
}  // namespace attn::engines
