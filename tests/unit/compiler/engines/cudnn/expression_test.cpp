#include "compiler/engines/cudnn/expression.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "compiler/ir/real_function.h"
#include "tests/unit/compiler/engines/example.h"

namespace attn::engines {
namespace {

using ir::ExprId;
using ir::Op;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::example;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using testing::lowered;
using ::testing::Not;
using testing::score_operations;
using ::testing::SizeIs;

class ExpressionTest : public ::testing::Test {
 protected:
  ExprId vector(const std::string& name, DType dtype, std::int64_t extent, ExprId index) {
    if (attention_.find_tensor(name) == nullptr) {
      attention_.tensors.push_back({name, dtype, {dag_.integer(extent)}, {}});
    }
    return dag_.add_symbol(Op::load_, name, ir::value_type(dtype), std::span(&index, 1));
  }
  std::vector<std::string> score(ExprId id) {
    attention_.score = id;
    return score_operations(attention_);
  }
  std::vector<std::string> mask(ExprId id) {
    attention_.masks = {id};
    return score_operations(attention_);
  }
  std::string refusal(ExprId id) {
    attention_.score = id;
    const auto program = lower(attention_, {});
    if (program.ok()) return "lowered";
    EXPECT_EQ(program.error().code, ErrorCode::unsupported);
    return program.error().to_text();
  }

  ir::Attention attention_ = example();
  ir::Dag& dag_ = attention_.dag;
  ExprId score_ = dag_.leaf(Op::score_);
  ExprId row_ = dag_.leaf(Op::row_);
  ExprId column_ = dag_.leaf(Op::column_);
  ExprId head_ = dag_.leaf(Op::head_);
};

// Every node's first input must be virtual, except the matmuls'.
void expect_virtual_first_inputs(const graph::BackendGraph& graph) {
  for (const graph::Node& node : graph.nodes) {
    if (const auto* pointwise = std::get_if<graph::Pointwise>(&node)) {
      EXPECT_EQ(graph.find(pointwise->x)->storage, graph::Storage::virtual_value) << to_text(graph);
    }
  }
}

TEST_F(ExpressionTest, SoftcapIsTheRecordedSequence) {
  const ExprId cap = dag_.real(50);
  const ExprId id =
      dag_.add(Op::mul_, {cap, dag_.add(Op::tanh_, {dag_.add(Op::div_, {score_, cap})})});
  EXPECT_THAT(score(id), ElementsAre("div.f32", "tanh.f32", "mul.f32"));
  expect_virtual_first_inputs(lowered(attention_));
}

TEST_F(ExpressionTest, FunctionsOfRealsAreLoweredAsTheirRowSays) {
  for (const ir::RealFunction& function : ir::real_functions()) {
    const auto count = static_cast<std::size_t>(ir::info(function.op).operands);
    const ExprId id = dag_.add(function.op, std::vector<ExprId>(count, score_));
    if (!function.is_in_cudnn()) {
      EXPECT_THAT(refusal(id), HasSubstr("no form that is proven"));
    } else if (function.is_composed()) {
      EXPECT_THAT(score(id), SizeIs(::testing::Ge(2U))) << ir::info(function.op).name;
    } else {
      EXPECT_THAT(score(id), ElementsAre(std::string(function.cudnn) + ".f32"));
    }
  }
}

TEST_F(ExpressionTest, ComposedFunctionsKeepTheScoreFirst) {
  for (const Op op : {Op::exp2_, Op::log2_, Op::log1p_, Op::expm1_}) {
    score(dag_.add(op, {score_}));
    expect_virtual_first_inputs(lowered(attention_));
  }
}

TEST_F(ExpressionTest, ExponentialsToBase2AreAProductMore) {
  EXPECT_THAT(score(dag_.add(Op::exp2_, {score_})), ElementsAre("mul.f32", "exp.f32"));
  EXPECT_THAT(score(dag_.add(Op::log2_, {score_})), ElementsAre("log.f32", "mul.f32"));
}

TEST_F(ExpressionTest, FunctionsNearZeroSelectAPolynomialThere) {
  for (const Op op : {Op::log1p_, Op::expm1_}) {
    const std::vector<std::string> nodes = score(dag_.add(op, {score_}));
    ASSERT_GE(nodes.size(), 3U);
    EXPECT_THAT(std::vector(nodes.end() - 3, nodes.end()),
                ElementsAre("abs.f32", "cmp_lt.f32", "binary_select.f32"));
  }
}

TEST_F(ExpressionTest, AlibiIsTheRecordedSequence) {
  const ExprId distance = dag_.add(Op::to_real_, {dag_.add(Op::sub_, {column_, row_})});
  const ExprId bias = dag_.add(Op::mul_, {vector("slopes", DType::f32, 8, head_), distance});
  EXPECT_THAT(score(dag_.add(Op::add_, {score_, bias})),
              ElementsAre("gen_index.f32@3", "gen_index.f32@2", "sub.i32", "mul.f32", "add.f32"));
  expect_virtual_first_inputs(lowered(attention_));
}

TEST_F(ExpressionTest, ScalarsOnTheLeftOfADifferenceMoveRight) {
  EXPECT_THAT(score(dag_.add(Op::sub_, {dag_.real(1), score_})), ElementsAre("neg.f32", "add.f32"));
}

TEST_F(ExpressionTest, ScalarsOnTheLeftOfADivisionBecomeElements) {
  score(dag_.add(Op::div_, {dag_.real(1), score_}));
  expect_virtual_first_inputs(lowered(attention_));
}

TEST_F(ExpressionTest, ComparingTwoTensorsStartsFromAVirtualOne) {
  const ExprId same = dag_.add(
      Op::eq_, {vector("doc_q", DType::i32, 128, row_), vector("doc_k", DType::i32, 256, column_)});
  EXPECT_THAT(mask(same), ElementsAre("gen_index.f32@2", "sub.i32", "add.i32", "cmp_eq.bool",
                                      "binary_select.f32"));
  expect_virtual_first_inputs(lowered(attention_));
}

TEST_F(ExpressionTest, OrComputesInFloat) {
  const ExprId either = dag_.add(
      Op::or_, {dag_.add(Op::ge_, {row_, column_}), dag_.add(Op::lt_, {column_, dag_.integer(4)})});
  EXPECT_THAT(mask(either), Contains("logical_or.f32"));
}

TEST_F(ExpressionTest, RowsAreNotComparedAsInThePaddingMask) {
  const ExprId bound = vector("bound", DType::i32, 128, row_);
  const ExprId number = dag_.add(Op::lt_, {row_, dag_.integer(2)});
  const ExprId tensor = dag_.add(Op::lt_, {row_, bound});
  const ExprId mirrored = dag_.add(Op::gt_, {bound, row_});
  const ExprId column = dag_.add(Op::lt_, {column_, dag_.integer(2)});
  EXPECT_EQ(mask(number).at(1), "cmp_le.bool");
  EXPECT_EQ(mask(tensor).at(1), "add.i32");
  attention_.lengths_q = attention_.lengths_kv = true;
  for (const std::string_view name : {ir::kLengthsQ, ir::kLengthsKv}) {
    attention_.tensors.push_back({std::string(name), DType::i32, {dag_.integer(2)}, {}});
  }
  EXPECT_EQ(mask(number).at(1), "cmp_le.bool");
  EXPECT_EQ(mask(dag_.add(Op::not_, {dag_.add(Op::ge_, {row_, dag_.integer(2)})})).at(1),
            "cmp_le.bool");
  for (const ExprId below : {tensor, mirrored}) {
    EXPECT_EQ(mask(below).at(1), "add.i32");
    EXPECT_EQ(mask(below).at(2), "cmp_lt.bool");
  }
  EXPECT_EQ(mask(column).at(1), "cmp_lt.bool");
}

// cuDNN takes `>` and `>=` of indices for those of its own masks, whichever index comes first.
TEST_F(ExpressionTest, RowsAndColumnsAreComparedByLeAlone) {
  const ExprId twice = dag_.add(Op::mul_, {column_, dag_.integer(2)});
  const ExprId other = dag_.add(Op::eq_, {column_, dag_.integer(4)});
  for (const Op op : {Op::lt_, Op::le_, Op::gt_, Op::ge_}) {
    for (const auto& [x, y] : {std::pair(row_, column_), std::pair(column_, row_),
                               std::pair(row_, twice), std::pair(twice, row_)}) {
      const auto operations = mask(dag_.add(Op::or_, {dag_.add(op, {x, y}), other}));
      EXPECT_THAT(operations, Contains("cmp_le.bool"));
      const auto strict = Contains(AnyOf("cmp_lt.bool", "cmp_gt.bool", "cmp_ge.bool"));
      EXPECT_THAT(operations, Not(strict));
    }
  }
}

TEST_F(ExpressionTest, RealsOfIndicesAreNotComparedByGreater) {
  const ExprId row = dag_.add(Op::to_real_, {row_}), column = dag_.add(Op::to_real_, {column_});
  const ExprId row_after = dag_.add(Op::add_, {row, dag_.real(0.25)});
  const ExprId column_after = dag_.add(Op::add_, {column, dag_.real(0.5)});
  const ExprId other = dag_.add(Op::eq_, {column_, dag_.integer(4)});
  for (const Op op : {Op::lt_, Op::le_, Op::gt_, Op::ge_}) {
    for (const auto& [x, y] :
         {std::pair(column_after, row), std::pair(row, column_after),
          std::pair(column_after, row_after), std::pair(row_after, column_after)}) {
      const auto operations = mask(dag_.add(Op::or_, {dag_.add(op, {x, y}), other}));
      EXPECT_THAT(operations, Contains(AnyOf("cmp_le.f32", "cmp_lt.f32")));
      EXPECT_THAT(operations, Not(Contains(AnyOf("cmp_gt.f32", "cmp_ge.f32"))));
    }
  }
}

// x + 1 <= y would be true of the largest x, which wraps.
TEST_F(ExpressionTest, TheLargestIntegerIsBelowNone) {
  const ExprId any = dag_.add(Op::max_, {column_, vector("bound", DType::i32, 8, head_)});
  const auto operations = mask(dag_.add(Op::lt_, {any, row_}));
  EXPECT_THAT(operations, IsSupersetOf({"max.i32", "cmp_le.bool", "cmp_eq.f32"}));
  EXPECT_THAT(operations, Not(Contains("add.i32")));
}

TEST_F(ExpressionTest, NotOfIntegersSwapsTheComparison) {
  const ExprId even = dag_.add(Op::eq_, {column_, dag_.integer(4)});
  const auto operations = mask(dag_.add(Op::not_, {even}));
  EXPECT_THAT(operations, ElementsAre("gen_index.f32@3", "cmp_ne.bool", "binary_select.f32"));
}

TEST_F(ExpressionTest, NotOfRealsKeepsTheComparison) {
  const ExprId bias = vector("bias", DType::f32, 256, column_);
  const auto operations = mask(dag_.add(Op::not_, {dag_.add(Op::lt_, {bias, dag_.real(0)})}));
  EXPECT_THAT(operations, Contains("cmp_lt.f32"));
  EXPECT_THAT(operations, Contains("cmp_eq.f32"));
  EXPECT_THAT(operations, Not(Contains("cmp_ge.f32")));
}

TEST_F(ExpressionTest, SelectsKeepAnElementFirst) {
  const ExprId condition = dag_.add(Op::ge_, {row_, column_});
  score(dag_.add(Op::select_, {condition, dag_.real(0), score_}));
  expect_virtual_first_inputs(lowered(attention_));
}

TEST_F(ExpressionTest, SelectsOfBooleansAreLogic) {
  const ExprId condition = dag_.add(Op::gt_, {score_, dag_.real(0)});
  const ExprId even = dag_.add(Op::eq_, {column_, dag_.integer(4)});
  const ExprId before = dag_.add(Op::ge_, {row_, column_});
  const ExprId either = dag_.add(Op::select_, {condition, even, before});
  const auto operations = score(dag_.add(Op::to_real_, {either}));
  EXPECT_EQ(std::ranges::count(operations, "logical_and.f32"), 2);
  EXPECT_EQ(std::ranges::count(operations, "logical_or.f32"), 1);
  expect_virtual_first_inputs(lowered(attention_));
}

TEST_F(ExpressionTest, SelectsOfIntegersAreRefused) {
  const ExprId condition = dag_.add(Op::gt_, {score_, dag_.real(0)});
  const ExprId either = dag_.add(Op::select_, {condition, row_, column_});
  EXPECT_THAT(refusal(dag_.add(Op::to_real_, {either})), HasSubstr("between reals only"));
}

TEST_F(ExpressionTest, IntegerDivisionNeedsOperandsThatAreNotNegative) {
  const ExprId tile = dag_.add(Op::floordiv_, {column_, dag_.integer(4)});
  EXPECT_THAT(mask(dag_.add(Op::eq_, {tile, row_})), Contains("div.i32"));
  const ExprId distance = dag_.add(Op::sub_, {row_, column_});
  const ExprId bad = dag_.add(Op::to_real_, {dag_.add(Op::floordiv_, {distance, dag_.integer(4)})});
  EXPECT_THAT(refusal(dag_.add(Op::add_, {score_, bad})), HasSubstr("rounds down"));
}

// cuDNN computes 300 / 300 as 0 (rewrite/division.h), so lowering emits (2 x + 1) / (2 y).
TEST_F(ExpressionTest, IntegerQuotientsLieAwayFromIntegers) {
  const auto tile_of = [&](Op op, ExprId divisor) {
    return mask(dag_.add(Op::eq_, {dag_.add(op, {column_, divisor}), row_}));
  };
  const auto count = [](const std::vector<std::string>& operations, const char* wanted) {
    return std::ranges::count(operations, wanted);
  };
  const auto by_four = tile_of(Op::floordiv_, dag_.integer(4));
  const auto by_three = tile_of(Op::floordiv_, dag_.integer(3));
  EXPECT_EQ(count(by_three, "add.i32"), count(by_four, "add.i32") + 2);
  EXPECT_THAT(tile_of(Op::mod_, dag_.integer(3)), Not(Contains("mod.i32")));
  std::vector<double> divisors;
  const auto program = lower(attention_, {});
  for (const plan::Operand& operand : std::get<plan::CudnnStep>(program->steps[0]).operands) {
    const auto* constant = std::get_if<plan::ConstantOperand>(&operand.source);
    if (constant != nullptr) divisors.push_back(constant->value);
  }
  EXPECT_THAT(divisors, Contains(6.0));
  const ExprId large = dag_.add(Op::mul_, {column_, dag_.integer(1 << 20)});
  const ExprId quotient =
      dag_.add(Op::to_real_, {dag_.add(Op::floordiv_, {large, dag_.integer(3)})});
  EXPECT_THAT(refusal(dag_.add(Op::add_, {score_, quotient})), HasSubstr("not exact"));
}

TEST_F(ExpressionTest, BitsAreRefused) {
  const ExprId bits = dag_.add(Op::to_real_, {dag_.add(Op::bit_and_, {row_, column_})});
  EXPECT_THAT(refusal(dag_.add(Op::add_, {score_, bits})), HasSubstr("bit operations"));
}

TEST_F(ExpressionTest, ConstantsThatCuDnnCannotHoldAreRefused) {
  EXPECT_THAT(refusal(dag_.add(Op::add_, {score_, dag_.real(1e300)})),
              HasSubstr("too large for f32"));
  attention_.score = dag_.add(Op::add_, {score_, dag_.real(std::nan(""))});
  const auto program = lower(attention_, {});
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, ErrorCode::invalid_spec);
}

TEST_F(ExpressionTest, EqualConstantsShareOneScalar) {
  const ExprId two = dag_.real(2);
  score(dag_.add(Op::div_, {dag_.add(Op::mul_, {score_, two}), two}));
  int scalars = 0;
  for (const auto& tensor : lowered(attention_).tensors) {
    scalars += tensor.storage == graph::Storage::host_scalar ? 1 : 0;
  }
  EXPECT_EQ(scalars, 2);  // the scale and the 2
}

TEST_F(ExpressionTest, ASingleRowReadsItsIndicesFromMemory) {
  attention_.dims.set(ir::Dim::Sq, 1);
  const ExprId odd = dag_.add(Op::eq_, {dag_.add(Op::mod_, {column_, dag_.integer(2)}),
                                        dag_.add(Op::mod_, {head_, dag_.integer(2)})});
  attention_.masks = {odd};
  const auto program = lower(attention_, {});
  ASSERT_TRUE(program.ok()) << program.error().to_text();
  EXPECT_EQ(plan::iota_elements(*program), 256);
  const auto& step = std::get<plan::CudnnStep>(program->steps[0]);
  std::vector<std::int64_t> counts;
  for (const plan::Operand& operand : step.operands) {
    const auto* iota = std::get_if<plan::IotaOperand>(&operand.source);
    if (iota != nullptr) counts.push_back(iota->count);
  }
  EXPECT_THAT(counts, ElementsAre(256, 8));
  expect_virtual_first_inputs(step.graph);
}

TEST_F(ExpressionTest, PositionsReachTheNodes) {
  const ExprId id = dag_.add(Op::exp_, {score_}, {7, 12});
  attention_.score = id;
  const auto graph = lowered(attention_);
  EXPECT_EQ(graph::position_of(graph.nodes[2]).line, 7u);
  EXPECT_EQ(graph::position_of(graph.nodes[2]).column, 12u);
}

}  // namespace
}  // namespace attn::engines
