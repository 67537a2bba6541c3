// What hoist refuses and leaves unchanged; what it derives is in tests/golden/hoist.
#include "compiler/rewrite/hoist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/compiler/masks/example.h"

namespace attn::rewrite {
namespace {

using ir::ExprId;
using ir::Op;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

HoistOptions options_with(ErrorCode code) {
  HoistOptions options;
  options.readable = [code](const ir::Attention&, ExprId) { return Status(code, "no"); };
  return options;
}

ir::Attention with_load(std::int64_t rows, std::int64_t columns) {
  ir::Attention attention = masks::testing::example(rows, columns);
  ir::Dag& dag = attention.dag;
  attention.tensors = {{"t", DType::f32, {dag.integer(rows), dag.integer(columns)}, {}}};
  const ExprId indices[] = {dag.leaf(Op::row_), dag.leaf(Op::column_)};
  const ExprId load = dag.add_symbol(Op::load_, "t", ir::Type::real, indices, {3, 9});
  attention.score = dag.add(Op::add_, {attention.score, load});
  return attention;
}

TEST(Hoist, DerivesWhatCannotBeReadAndLeavesErrorsToLowering) {
  const ir::Attention attention = with_load(6, 10);
  const auto derived = [&](ErrorCode code) {
    return hoist(attention, options_with(code), {})->derived.size();
  };
  EXPECT_EQ(derived(ErrorCode::unsupported), 1U);
  EXPECT_EQ(derived(ErrorCode::invalid_spec), 0U);
}

TEST(Hoist, RefusesWhatTakesTooMuchMemory) {
  HoistOptions options = options_with(ErrorCode::unsupported);
  options.most_bytes = 4 * 6 * 10;
  EXPECT_TRUE(hoist(with_load(6, 10), options, {}).ok());
  const Result<Hoisted> refused = hoist(with_load(6, 11), options, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("cannot evaluate `t[q_idx, kv_idx]`"));
  EXPECT_EQ(refused.error().payload, R"({"line": 3, "column": 9})");
  // Sizes whose product leaves 64 bits.
  const Result<Hoisted> huge = hoist(with_load(2147483647, 2147483647), options, {});
  ASSERT_FALSE(huge.ok());
}

TEST(Hoist, ATableThatTheKernelCouldDoWithoutIsOfModestSize) {
  ir::Attention attention = masks::testing::example(6, 10);
  ir::Dag& dag = attention.dag;
  const ExprId sum = dag.add(Op::add_, {dag.leaf(Op::row_), dag.leaf(Op::column_)});
  attention.masks = {dag.add(Op::ne_, {dag.add(Op::mod_, {sum, dag.integer(3)}), dag.integer(0)})};
  HoistOptions options = options_with(ErrorCode::unsupported);
  options.most_table_bytes = 4 * 6 * 10;
  EXPECT_EQ(hoist(attention, options, {})->derived.size(), 1U);
  options.most_table_bytes -= 1;
  EXPECT_EQ(hoist(attention, options, {})->derived.size(), 0U);
  // Divisions that round differently from the kernel's must become a table.
  const ExprId less = dag.add(Op::sub_, {dag.leaf(Op::row_), dag.leaf(Op::column_)});
  attention.masks = {dag.add(Op::ne_, {dag.add(Op::mod_, {less, dag.integer(3)}), dag.integer(0)})};
  EXPECT_EQ(hoist(attention, options, {})->derived.size(), 1U);
}

TEST(Hoist, AxesOfOneElementAreLeftOut) {
  ir::Attention attention = masks::testing::example(1, 10);
  attention.dims.set(ir::Dim::B, 1);
  ir::Dag& dag = attention.dag;
  ExprId sum = dag.add(Op::add_, {dag.leaf(Op::batch_), dag.leaf(Op::head_)});
  sum = dag.add(Op::add_, {sum, dag.leaf(Op::row_)});
  const ExprId bits = dag.add(Op::bit_and_, {sum, dag.leaf(Op::column_)});
  attention.masks = {dag.add(Op::ne_, {bits, dag.integer(0)})};
  const Result<Hoisted> hoisted = hoist(attention, options_with(ErrorCode::unsupported), {});
  ASSERT_EQ(hoisted->derived.size(), 1U);
  EXPECT_THAT(hoisted->derived[0].dims, ElementsAre(4, 10));
}

TEST(Hoist, AnExpressionThatIsReadTwiceIsDerivedOnce) {
  ir::Attention attention = masks::testing::example(6, 10);
  ir::Dag& dag = attention.dag;
  const ExprId fold = dag.add(Op::floordiv_, {dag.leaf(Op::row_), dag.integer(2)});
  attention.masks = {dag.add(Op::lt_, {dag.leaf(Op::column_), fold}),
                     dag.add(Op::ne_, {fold, dag.leaf(Op::column_)})};
  EXPECT_EQ(hoist(attention, options_with(ErrorCode::unsupported), {})->derived.size(), 1U);
}

// The derivative in a backward reads what the score reads.
TEST(Hoist, WhatIsComputedBesideTheAttentionIsDerivedToo) {
  ir::Attention attention = with_load(6, 10);
  ir::Dag& dag = attention.dag;
  const ExprId load = dag[attention.score].operands[1];
  const ExprId beside = dag.add(Op::mul_, {dag.leaf(Op::score_), load});
  HoistOptions options = options_with(ErrorCode::unsupported);
  options.extra = {beside, attention.score, dag.real(1)};
  const Result<Hoisted> both = hoist(attention, options, {});
  ASSERT_TRUE(both.ok()) << both.error().to_text();
  ASSERT_EQ(both->derived.size(), 1U) << "one tensor for both";
  ASSERT_EQ(both->extra.size(), 3U);
  const ir::Dag& after = both->attention.dag;
  ASSERT_TRUE(after[both->extra[0]].is(Op::mul_));
  EXPECT_EQ(after.symbol_of(after[both->extra[0]].operands[1]), both->derived[0].name);
  EXPECT_EQ(both->extra[1], both->attention.score);
  EXPECT_EQ(after.real_of(both->extra[2]), 1);
  // When nothing else reads it.
  attention.score = dag.leaf(Op::score_);
  options.extra.clear();
  EXPECT_EQ(hoist(attention, options, {})->derived.size(), 0U);
  options.extra = {beside};
  EXPECT_EQ(hoist(attention, options, {})->derived.size(), 1U);
}

}  // namespace
}  // namespace attn::rewrite
