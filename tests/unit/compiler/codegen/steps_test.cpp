#include "compiler/codegen/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/engines/cudnn/captured_view.h"
#include "compiler/engines/cudnn/lower.h"
#include "tests/unit/compiler/codegen/example.h"

namespace attn::codegen::steps_tests {
namespace {

using ir::ExprId;
using ir::Op;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> names(const std::vector<plan::TensorInfo>& tensors) {
  std::vector<std::string> all;
  for (const plan::TensorInfo& tensor : tensors) all.push_back(tensor.name);
  return all;
}

plan::Program program_of(const ir::Attention& attention) {
  rewrite::HoistOptions options;
  options.readable = [](const ir::Attention& of, ExprId load) {
    return engines::captured_view(of, load).status();
  };
  const rewrite::Hoisted hoisted = rewrite::hoist(attention, options, {}).value();
  return with_derived(attention, hoisted, engines::lower(hoisted.attention, {}).value());
}

TEST(DeriveSteps, OnceBeforeTheOthersAndWhatTheyReadIsBound) {
  testing::Example example;
  ir::Attention& attention = example.attention;
  ir::Dag& dag = attention.dag;
  const ExprId row = dag.leaf(Op::row_), column = dag.leaf(Op::column_);
  const ExprId through = example.load("tiny", {example.load("word", {row})});
  const ExprId folded = dag.add(Op::floordiv_, {column, dag.integer(4)});
  attention.masks = {dag.add(Op::ne_, {through, folded})};
  const ExprId scaled = dag.add(Op::mul_, {example.load("single", {column}),
                                           dag.add_symbol(Op::param_, "scale", ir::Type::real)});
  attention.score = dag.add(Op::add_, {attention.score, scaled});
  const plan::Program program = program_of(attention);
  EXPECT_TRUE(plan::validate(program).ok());
  EXPECT_THAT(names(program.tensors), ElementsAre("q", "k", "v", "single", "tiny", "word", "o"));
  EXPECT_THAT(names(program.internals), ElementsAre("derived_0", "derived_1"));
  ASSERT_EQ(program.params.size(), 1U);
  ASSERT_EQ(program.steps.size(), 3U);
  const auto& once = std::get<plan::DeriveStep>(program.steps[0]);
  EXPECT_TRUE(once.once);
  EXPECT_THAT(once.outputs, ElementsAre("derived_1"));
  EXPECT_THAT(once.expressions, ElementsAre("kv_idx // 4"));
  EXPECT_TRUE(once.inputs.empty());
  const auto& each = std::get<plan::DeriveStep>(program.steps[1]);
  EXPECT_FALSE(each.once);
  EXPECT_THAT(each.outputs, ElementsAre("derived_0"));
  EXPECT_EQ(each.inputs, (std::vector<plan::OperandSource>{plan::TensorOperand{"tiny"},
                                                           plan::TensorOperand{"word"}}));
}

TEST(DeriveSteps, ParamsThatOnlyTheyReadAreBound) {
  testing::Example example;
  ir::Attention& attention = example.attention;
  ir::Dag& dag = attention.dag;
  attention.params.insert(attention.params.begin(), {"flags", DType::i32, {}});
  const ExprId flags = dag.add_symbol(Op::param_, "flags", ir::Type::integer);
  const ExprId bits = dag.add(Op::bit_and_, {flags, dag.leaf(Op::column_)});
  attention.masks = {dag.add(Op::ne_, {bits, dag.integer(0)})};
  const plan::Program program = program_of(attention);
  EXPECT_EQ(program.params, (std::vector<plan::ParamInfo>{{"flags", DType::i32}}));
}

TEST(DeriveSteps, AStepTakesSixteenTensors) {
  testing::Example example;
  ir::Attention& attention = example.attention;
  ir::Dag& dag = attention.dag;
  for (int i = 2; i < 22; ++i) {
    const ExprId row = dag.add(Op::mod_, {dag.leaf(Op::row_), dag.integer(i)});
    const ExprId factor = dag.add(Op::to_real_, {row});
    attention.score = dag.add(Op::tanh_, {dag.add(Op::mul_, {attention.score, factor})});
  }
  const plan::Program program = program_of(attention);
  ASSERT_EQ(program.steps.size(), 3U);
  EXPECT_EQ(std::get<plan::DeriveStep>(program.steps[0]).outputs.size(), plan::kMostOutputs);
  EXPECT_EQ(std::get<plan::DeriveStep>(program.steps[1]).outputs.size(), 4U);
}

// Lengths of ragged tensors are computed by a step of lowering, from what is bound instead.
TEST(DeriveSteps, ReadWhatLoweringMakesAfterItIsMade) {
  testing::Example example;
  ir::Attention& attention = example.attention;
  ir::Dag& dag = attention.dag;
  for (const char* name : {"q", "k", "v", "o"}) attention.layouts[name].kind = ir::LayoutKind::thd;
  attention.lengths_q = attention.lengths_kv = true;
  for (const auto name : {ir::kLengthsQ, ir::kLengthsKv}) {
    attention.tensors.push_back({std::string(name), DType::i32, {dag.integer(2)}, {}});
  }
  const ExprId length = example.load("lengths_kv", {dag.leaf(Op::batch_)});
  const ExprId place = dag.add(Op::sub_, {dag.leaf(Op::column_), length});
  const ExprId word = example.load("word", {place});
  attention.masks = {dag.add(Op::ne_, {word, dag.leaf(Op::row_)})};
  const plan::Program program = program_of(attention);
  ASSERT_EQ(program.steps.size(), 4U);
  EXPECT_GT(std::get<plan::DeriveStep>(program.steps[3]).amends, 0);  // batches without keys
  EXPECT_THAT(std::get<plan::DeriveStep>(program.steps[0]).outputs, Contains("lengths_kv"));
  EXPECT_THAT(std::get<plan::DeriveStep>(program.steps[1]).outputs, ElementsAre("derived_0"));
  EXPECT_THAT(names(program.tensors), Contains("word"));
  EXPECT_THAT(names(program.tensors), Not(Contains("lengths_kv")));
  EXPECT_FALSE(program.check.has_value());  // it would read tensors that are not bound
  for (const char* name : {"q", "k", "v", "o"}) attention.layouts[name].kind = ir::LayoutKind::bshd;
  const plan::Program dense = program_of(attention);
  ASSERT_TRUE(dense.check.has_value());
  EXPECT_THAT(dense.check->source, HasSubstr("t_lengths_q"));  // hides scores past the lengths
}

TEST(DeriveSteps, NothingDerivedIsTheProgramItself) {
  const testing::Example example;
  const plan::Program lowered = engines::lower(example.attention, {}).value();
  EXPECT_EQ(with_derived(example.attention, {example.attention, {}, {}}, lowered), lowered);
}

}  // namespace
}  // namespace attn::codegen::steps_tests
