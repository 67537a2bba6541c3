#include "compiler/codegen/emit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/golden.h"
#include "tests/unit/compiler/codegen/example.h"

namespace attn::codegen {
namespace {

using ir::ExprId;
using ir::Op;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Emit, EveryTypeOfElementIndexAndParam) {
  testing::Example example;
  ir::Dag& dag = example.attention.dag;
  ExprId sum = dag.add_symbol(Op::param_, "scale", ir::Type::real);
  for (const char* name : {"half", "brain", "single", "full"}) {
    sum = dag.add(Op::add_, {sum, example.load(name, {dag.leaf(Op::column_)})});
  }
  for (const char* name : {"tiny", "byte", "word", "big"}) {
    const ExprId value = example.load(name, {dag.leaf(Op::row_)});
    sum = dag.add(Op::add_, {sum, dag.add(Op::to_real_, {value})});
  }
  const ExprId flag = example.load("flag", {dag.leaf(Op::batch_), dag.leaf(Op::head_)});
  const ExprId chosen = dag.add(Op::select_, {flag, sum, dag.real(-0.5)});
  const plan::DeriveStep step =
      emit_step(example.attention, {example.derived("all", chosen, {true, true, true, true})});
  attn::testing::expect_golden("tests/unit/compiler/codegen/golden/elements.cu", step.source);
}

TEST(Emit, OutputsOfAStepShareItsThreads) {
  testing::Example example;
  ir::Dag& dag = example.attention.dag;
  const ExprId row = dag.add(Op::floordiv_, {dag.leaf(Op::row_), dag.integer(16)});
  const ExprId both = dag.add(Op::bit_and_, {dag.leaf(Op::column_), dag.leaf(Op::head_)});
  const ExprId odd = dag.add(Op::ne_, {both, dag.integer(-3)});
  const plan::DeriveStep step =
      emit_step(example.attention, {example.derived("rows", row, {.row = true}),
                                    example.derived("odd", odd, {.head = true, .column = true})});
  EXPECT_TRUE(step.inputs.empty());
  attn::testing::expect_golden("tests/unit/compiler/codegen/golden/two_outputs.cu", step.source);
}

TEST(Emit, ReadsNothingOutsideATensor) {
  testing::Example example;
  ir::Dag& dag = example.attention.dag;
  const ExprId row = dag.leaf(Op::row_);
  const ExprId word = example.load("word", {row});
  const auto text = [&](ExprId load) {
    return emit_step(example.attention, {example.derived("out", load, {.row = true})}).source;
  };
  // i32[64] indexed by 64 rows: in range; its elements may have any value.
  EXPECT_THAT(text(word), Not(HasSubstr("_out =")));
  EXPECT_THAT(text(example.load("word", {word})), HasSubstr("_out = v1 < 0 || v1 > 63;"));
  const ExprId after = dag.add(Op::add_, {row, dag.integer(1)});
  EXPECT_THAT(text(example.load("word", {after})), HasSubstr("_out = v2 > 63;"));
  const ExprId before = dag.add(Op::sub_, {row, dag.integer(1)});
  EXPECT_THAT(text(example.load("word", {before})), HasSubstr("_out = v2 < 0;"));
  const ExprId clamped = dag.add(Op::max_, {before, dag.integer(0)});
  EXPECT_THAT(text(example.load("word", {clamped})), Not(HasSubstr("_out =")));
  const ExprId truth = example.load("flag", {word, dag.leaf(Op::head_)});
  EXPECT_THAT(text(truth), HasSubstr("= v3_out ? false : t_flag[((long long)v1) * 4 + 0] != 0;"));
}

TEST(Emit, NumbersThatHaveNoPlainLiteral) {
  testing::Example example;
  ir::Dag& dag = example.attention.dag;
  const ExprId row = dag.leaf(Op::row_);
  const ExprId lowest = dag.add(Op::sub_, {row, dag.integer(INT32_MIN)});
  const ExprId negative = dag.add(Op::sub_, {lowest, dag.integer(-1)});
  const ExprId real = dag.add(Op::to_real_, {negative});
  const ExprId least = dag.add(Op::max_, {real, dag.real(-1.0 / 0.0)});
  const ExprId most = dag.add(Op::min_, {least, dag.real(1.0 / 0.0)});
  const ExprId neither = dag.add(Op::add_, {most, dag.real(0.0 / 0.0)});
  const std::string text =
      emit_step(example.attention, {example.derived("out", neither, {.row = true})}).source;
  EXPECT_THAT(text, HasSubstr("attn_wrap((long long)row - (-2147483647 - 1))"));
  EXPECT_THAT(text, HasSubstr(" - (-1))"));
  EXPECT_THAT(text, HasSubstr("(-1.0 / 0.0)"));
  EXPECT_THAT(text, HasSubstr(", (1.0 / 0.0))"));
  EXPECT_THAT(text, HasSubstr(" + (0.0 / 0.0)"));
}

}  // namespace
}  // namespace attn::codegen
