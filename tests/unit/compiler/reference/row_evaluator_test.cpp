#include "compiler/reference/row_evaluator.h"

#include <gtest/gtest.h>

#include <limits>

namespace attn::reference::row_evaluator_tests {
namespace {

using ir::ExprId;
using ir::Op;
using ir::Type;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class RowEvaluatorTest : public ::testing::Test {
 protected:
  RowEvaluatorTest() {
    attention_.tensors = {{"t", DType::f32, {dag_.integer(2), dag_.integer(3)}, {}}};
    bindings_.tensors["t"] = {DType::f32, {2, 3}, {0, 1, 2, 10, 11, 12}};
    bindings_.params["p"] = 7;
  }

  Cell at(ExprId id, std::size_t column) {
    const ExprId roots[] = {id};
    RowEvaluator evaluator(attention_, bindings_, roots);
    const double scores[] = {0.5, kNaN, 2.5, 3.5};
    evaluator.run({1, 2, 3}, scores);
    const Cell cell = evaluator.cells(id)[column];
    if (cell.fault) message_ = evaluator.describe(*cell.fault, column).message;
    return cell;
  }
  double value(ExprId id, std::size_t column) {
    const Cell cell = at(id, column);
    EXPECT_FALSE(cell.fault);
    return cell.value;
  }

  ir::Attention attention_;
  ir::Dag& dag_ = attention_.dag;
  Bindings bindings_;
  ExprId score_ = dag_.leaf(Op::score_);
  ExprId column_ = dag_.leaf(Op::column_);
  ExprId zero_ = dag_.integer(0);
  std::string message_;
};

TEST_F(RowEvaluatorTest, Leaves) {
  EXPECT_EQ(value(score_, 2), 2.5);
  EXPECT_EQ(value(column_, 3), 3);
  EXPECT_EQ(value(dag_.leaf(Op::batch_), 0), 1);
  EXPECT_EQ(value(dag_.leaf(Op::head_), 0), 2);
  EXPECT_EQ(value(dag_.leaf(Op::row_), 0), 3);
  EXPECT_EQ(value(dag_.add_symbol(Op::param_, "p", Type::real), 0), 7);
  attention_.dims.set(ir::Dim::Skv, 4);
  EXPECT_EQ(value(dag_.dim("Skv"), 0), 4);
  EXPECT_EQ(value(dag_.boolean(true), 0), 1);
}

// Nodes below which there is no column and no score are evaluated once a row.
TEST_F(RowEvaluatorTest, WhatOnlyRowsDecideIsTheSameForEachColumnOfOneRow) {
  const ExprId row = dag_.leaf(Op::row_);
  const ExprId twice = dag_.add(Op::mul_, {row, dag_.integer(2)});
  const ExprId fault =
      dag_.add(Op::mod_, {dag_.integer(7), dag_.add(Op::sub_, {row, dag_.integer(3)})});
  const ExprId both = dag_.add(Op::add_, {twice, column_});
  const ExprId roots[] = {twice, fault, both};
  RowEvaluator evaluator(attention_, bindings_, roots);
  const double scores[] = {0, 0, 0};
  for (const std::int64_t at : {5, 3, 4}) {
    evaluator.run({0, 0, at}, scores);
    for (std::size_t column = 0; column < 3; ++column) {
      EXPECT_EQ(evaluator.cells(twice)[column].value, 2 * at);
      EXPECT_EQ(evaluator.cells(fault)[column].fault.has_value(), at == 3);
      EXPECT_EQ(evaluator.cells(both)[column].value, 2 * at + static_cast<std::int64_t>(column));
    }
  }
  evaluator.run({0, 0, 1}, std::span(scores).first(0));
  EXPECT_EQ(evaluator.cells(both).size(), 0U);
}

TEST_F(RowEvaluatorTest, LoadsAreRowMajor) {
  const ExprId indices[] = {dag_.leaf(Op::batch_), column_};
  const ExprId load = dag_.add_symbol(Op::load_, "t", Type::real, indices);
  EXPECT_EQ(value(load, 0), 10);
  EXPECT_EQ(value(load, 2), 12);
  EXPECT_TRUE(at(load, 3).fault);
  EXPECT_EQ(message_, "t[b, kv_idx]: index 1 is 3, outside 0..2, at b 1, h 2, row 3, column 3");
}

TEST_F(RowEvaluatorTest, SelectPassesNothingFromTheBranchNotTaken) {
  const ExprId first = dag_.add(Op::eq_, {column_, zero_});
  EXPECT_EQ(value(dag_.add(Op::select_, {first, dag_.real(4), dag_.real(kNaN)}), 0), 4);
  const ExprId fault = dag_.add(Op::floordiv_, {column_, zero_});
  const ExprId guarded = dag_.add(Op::select_, {first, zero_, fault});
  EXPECT_EQ(value(guarded, 0), 0);
  EXPECT_TRUE(at(guarded, 1).fault);
  EXPECT_EQ(message_, "kv_idx // 0: division by zero, at b 1, h 2, row 3, column 1");
}

TEST_F(RowEvaluatorTest, ADecidedAndOrDoesNotMissTheOtherSide) {
  const ExprId bad = dag_.add(Op::eq_, {dag_.add(Op::mod_, {column_, zero_}), zero_});
  const ExprId yes = dag_.add(Op::ge_, {column_, zero_});
  const ExprId no = dag_.add(Op::lt_, {column_, zero_});
  EXPECT_EQ(value(dag_.add(Op::and_, {no, bad}), 0), 0);
  EXPECT_EQ(value(dag_.add(Op::and_, {bad, no}), 0), 0);
  EXPECT_EQ(value(dag_.add(Op::or_, {yes, bad}), 0), 1);
  EXPECT_EQ(value(dag_.add(Op::or_, {bad, yes}), 0), 1);
  EXPECT_TRUE(at(dag_.add(Op::and_, {yes, bad}), 0).fault);
  EXPECT_TRUE(at(dag_.add(Op::or_, {bad, no}), 0).fault);
  EXPECT_EQ(value(dag_.add(Op::and_, {yes, yes}), 0), 1);
}

TEST_F(RowEvaluatorTest, FaultsPassThroughWhatIsComputedFromThem) {
  const ExprId shifted = dag_.add(Op::shift_left_, {column_, dag_.integer(40)});
  const ExprId real = dag_.add(Op::to_real_, {dag_.add(Op::neg_, {shifted})});
  EXPECT_TRUE(at(dag_.add(Op::mul_, {score_, real}), 0).fault);
  EXPECT_EQ(message_, "kv_idx << 40: shift by 40, at b 1, h 2, row 3, column 0");
}

}  // namespace
}  // namespace attn::reference::row_evaluator_tests
