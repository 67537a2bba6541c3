#include "compiler/engines/cudnn/lower.h"

#include <gmock/gmock.h>

#include "tests/unit/compiler/engines/example.h"

namespace attn::engines {
namespace {

using ir::Op;
using ::testing::ElementsAre;
using testing::example;
using testing::lowered;
using testing::score_operations;

const graph::Tensor& tensor_named(const graph::BackendGraph& graph, std::string_view name) {
  for (const graph::Tensor& tensor : graph.tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return graph.tensors.front();
}

TEST(Lower, PlainIsTheRecordedSequence) {
  auto attention = example();
  attention.wants_lse = true;
  EXPECT_THAT(testing::operations(lowered(attention)),
              ElementsAre("matmul", "mul.f32", "reduce max", "sub.f32", "exp.f32", "reduce add",
                          "log.f32", "add.f32", "div.f32", "matmul"));
}

TEST(Lower, KeysAreATransposedView) {
  const auto graph = lowered(example());
  const graph::Tensor& k = tensor_named(graph, "k");
  EXPECT_THAT(k.dims, ElementsAre(2, 2, 64, 256));
  EXPECT_THAT(k.strides, ElementsAre(256 * 2 * 64, 64, 1, 2 * 64));
}

TEST(Lower, StatsAreStoredOnlyWhenWanted) {
  auto attention = example();
  EXPECT_EQ(tensor_named(lowered(attention), "lse").storage, graph::Storage::virtual_value);
  attention.wants_lse = true;
  const auto graph = lowered(attention);
  EXPECT_EQ(tensor_named(graph, "lse").storage, graph::Storage::device);
  EXPECT_THAT(tensor_named(graph, "lse").dims, ElementsAre(2, 8, 128, 1));
}

TEST(Lower, WeightsHaveTheIoType) {
  auto attention = example();
  attention.dtype = DType::bf16;
  EXPECT_EQ(tensor_named(lowered(attention), "p").dtype, DType::bf16);
}

class BandShapes : public ::testing::Test {
 protected:
  std::vector<std::string> operations() { return score_operations(attention_); }

  ir::Attention attention_ = example();
  ir::Dag& dag_ = attention_.dag;
  ir::ExprId row_ = dag_.leaf(Op::row_);
  ir::ExprId column_ = dag_.leaf(Op::column_);
};

TEST_F(BandShapes, Causal) {
  attention_.masks = {dag_.add(Op::ge_, {row_, column_})};
  EXPECT_THAT(operations(), ElementsAre("gen_index.f32@2", "gen_index.f32@3", "cmp_ge.bool",
                                        "binary_select.f32"));
}

TEST_F(BandShapes, CausalWindow) {
  attention_.masks = {dag_.add(Op::ge_, {row_, column_}),
                      dag_.add(Op::lt_, {dag_.add(Op::sub_, {row_, column_}), dag_.integer(32)})};
  EXPECT_THAT(operations(), ElementsAre("gen_index.f32@2", "gen_index.f32@3", "cmp_ge.bool",
                                        "binary_select.f32", "gen_index.f32@2", "gen_index.f32@3",
                                        "add.f32", "cmp_gt.bool", "binary_select.f32"));
}

TEST_F(BandShapes, BottomRightSpellsItsShift) {
  attention_.align = ir::Align::bottom_right;
  const auto q_idx = dag_.add(Op::add_, {row_, dag_.integer(128)});
  attention_.masks = {dag_.add(Op::ge_, {q_idx, column_})};
  EXPECT_THAT(operations(), ElementsAre("gen_index.f32@2", "gen_index.f32@3", "add.i32", "sub.i32",
                                        "cmp_ge.bool", "binary_select.f32"));
}

TEST_F(BandShapes, TheResidualComesBeforeTheBand) {
  attention_.masks = {dag_.add(Op::ge_, {row_, column_}),
                      dag_.add(Op::ne_, {column_, dag_.integer(5)})};
  EXPECT_THAT(operations(),
              ElementsAre("gen_index.f32@3", "cmp_ne.bool", "binary_select.f32", "gen_index.f32@2",
                          "gen_index.f32@3", "cmp_ge.bool", "binary_select.f32"));
}

TEST(Lower, AnOpenDimensionIsNamed) {
  auto attention = example();
  attention.dims.set(ir::Dim::Sq, std::nullopt);
  const auto program = lower(attention, {});
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(program.error().to_text(), ::testing::HasSubstr("--bind Sq="));
}

TEST(Lower, SizesBeyondAddressesAreRefused) {
  auto attention = example();
  for (const ir::Dim dim : {ir::Dim::B, ir::Dim::Hq, ir::Dim::Hkv, ir::Dim::Sq, ir::Dim::Skv}) {
    attention.dims.set(dim, 2'000'000'000);
  }
  const auto program = lower(attention, {});
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, ErrorCode::unsupported);
}

TEST(Lower, ABandThatNothingMeetsFitsItsConstants) {
  auto attention = example();
  attention.align = ir::Align::bottom_right;
  ir::Dag& dag = attention.dag;
  const auto distance = dag.add(Op::sub_, {dag.leaf(Op::column_), dag.leaf(Op::row_)});
  attention.masks = {dag.add(Op::le_, {distance, dag.integer(-2147483000)})};
  EXPECT_TRUE(lower(attention, {}).ok());
}

TEST(Lower, PagesAreOfAPowerOfTwo) {
  auto attention = example();
  for (const char* name : {"k", "v"}) attention.layouts[name] = {ir::LayoutKind::paged, {}, 48, 0};
  const auto program = lower(attention, {});
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, ErrorCode::unsupported);
  EXPECT_THAT(program.error().message, ::testing::HasSubstr("power of two"));
}

TEST(Lower, PagesOfKAndVMayHaveATableEach) {
  const auto tables_of = [](std::int64_t tables) {
    auto attention = example();
    for (const char* name : {"k", "v"}) {
      attention.layouts[name] = {ir::LayoutKind::paged, {}, 64, 0, tables};
    }
    std::vector<std::string> names;
    const auto program = lower(attention, {});
    for (const plan::TensorInfo& tensor : program.value().tensors) {
      if (!tensor.addressed_by.empty()) names.push_back(tensor.name + " " + tensor.addressed_by);
    }
    return names;
  };
  EXPECT_THAT(tables_of(1), ElementsAre("k page_table", "v page_table"));
  EXPECT_THAT(tables_of(2), ElementsAre("k page_table_k", "v page_table_v"));
}

TEST(Lower, StridesThatKillCudnnAreCopied) {
  auto attention = example();
  attention.layouts["q"] = {ir::LayoutKind::strided, {65536, 8192, 1, 128}};
  const auto program = lower(attention, {});
  ASSERT_TRUE(program.ok());
  ASSERT_EQ(program->internals.size(), 1u);
  EXPECT_EQ(program->internals[0].name, "q.padded");
  EXPECT_THAT(program->internals[0].strides, ElementsAre(65536, 8192, 64, 1));
  attention.layouts["q"].strides = {65536, 8192, 64, 1};
  EXPECT_TRUE(lower(attention, {})->internals.empty());
}

TEST(Lower, OnlyWhatIsReadIsBound) {
  auto attention = example();
  attention.tensors.push_back({"unused", DType::f32, {attention.dag.integer(8)}, {}});
  attention.params.push_back({"never", DType::f32, {}});
  const auto program = lower(attention, {});
  ASSERT_TRUE(program.ok());
  std::vector<std::string> names;
  for (const auto& tensor : program->tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("q", "k", "v", "o"));
  EXPECT_TRUE(program->params.empty());
}

TEST(Lower, AParamIsAScalarOperand) {
  auto attention = example();
  attention.params.push_back({"temperature", DType::f32, {}});
  const auto temperature = attention.dag.add_symbol(Op::param_, "temperature", ir::Type::real);
  attention.score = attention.dag.add(Op::div_, {attention.score, temperature});
  EXPECT_THAT(score_operations(attention), ElementsAre("div.f32"));
  const auto program = lower(attention, {});
  ASSERT_EQ(program->params.size(), 1u);
  EXPECT_EQ(program->params[0].name, "temperature");
}

}  // namespace
}  // namespace attn::engines
