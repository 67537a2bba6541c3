// simplify keeps the value of random expressions over edge cases: NaN, infinities, -0.0, the ends
// of 32 bits, gathers that may be out of range. (The results are in tests/golden/ir.)
#include "compiler/rewrite/simplify.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "compiler/reference/row_evaluator.h"
#include "tests/unit/compiler/ir/random_attention.h"
#include "tests/unit/compiler/masks/example.h"

namespace attn::rewrite {
namespace {

using ir::ExprId;
using ir::Op;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kColumns = 10;
constexpr double kScores[kColumns] = {0.0,       -0.0,       1.0,   -2.5, kNaN,
                                      kInfinity, -kInfinity, 1e300, 3,    0.5};

reference::Bindings bindings() {
  reference::Bindings bindings;
  bindings.params["p"] = kNaN;
  bindings.tensors["t"] = {DType::f32, {4}, {kNaN, -0.0, 2.0, -kInfinity}};
  bindings.tensors["n"] = {
      DType::i32, {kColumns}, {0, 1, -1, 2147483647, -2147483648.0, 5, 3, 2, 9, 31}};
  bindings.tensors["keep"] = {DType::boolean, {kColumns}, {1, 0, 0, 1, 1, 0, 1, 0, 1, 1}};
  return bindings;
}

// The score with the masks applied; a hidden one is -inf, even if it has no value.
std::vector<reference::Cell> visible_scores(const ir::Attention& attention,
                                            const reference::Bindings& bindings,
                                            const reference::RowPlace& place) {
  std::vector<ExprId> roots = attention.masks;
  roots.push_back(attention.score);
  reference::RowEvaluator evaluator(attention, bindings, roots);
  evaluator.run(place, kScores);
  std::vector<reference::Cell> cells = evaluator.cells(attention.score);
  for (std::size_t column = 0; column < cells.size(); ++column) {
    std::optional<ExprId> fault;
    bool hidden = false;
    for (ExprId mask : attention.masks) {
      const reference::Cell& cell = evaluator.cells(mask)[column];
      hidden = hidden || (!cell.fault && cell.value == 0);
      if (cell.fault) fault = cell.fault;
    }
    if (fault) cells[column].fault = fault;
    if (hidden) cells[column] = {-kInfinity, {}};
  }
  return cells;
}

bool same(double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
}

TEST(Simplify, KeepsTheValueOfRandomExpressions) {
  const reference::Bindings inputs = bindings();
  int compared = 0;
  int changed = 0;
  for (unsigned seed = 0; seed < 60000; ++seed) {
    const ir::Attention before = ir::testing::RandomAttention(seed, kColumns).make();
    ASSERT_TRUE(ir::verify(before).ok()) << ir::verify(before).error().message;
    const ir::Attention after = simplify(before);
    ASSERT_TRUE(ir::verify(after).ok()) << ir::verify(after).error().message;
    ASSERT_EQ(ir::to_text(simplify(after)), ir::to_text(after)) << ir::to_text(before);
    changed += ir::to_text(after) != ir::to_text(before) ? 1 : 0;
    const reference::RowPlace place = {seed % 2, seed % 4, seed % 6};
    const auto expected = visible_scores(before, inputs, place);
    const auto actual = visible_scores(after, inputs, place);
    for (std::size_t column = 0; column < expected.size(); ++column) {
      if (expected[column].fault) continue;  // errors may be lost, values may not
      ++compared;
      ASSERT_FALSE(actual[column].fault) << ir::to_text(before) << ir::to_text(after);
      ASSERT_TRUE(same(expected[column].value, actual[column].value))
          << "seed " << seed << " column " << column << ": " << expected[column].value << " became "
          << actual[column].value << "\n"
          << ir::to_text(before) << ir::to_text(after);
    }
  }
  EXPECT_GT(compared, 100000);
  EXPECT_GT(changed, 5000);
}

TEST(Simplify, LeavesWhatIsNotExpressionAlone) {
  ir::Attention attention = masks::testing::example(6, kColumns);
  attention.align = ir::Align::bottom_right;
  attention.layouts["q"] = {ir::LayoutKind::strided, {1, 2, 3, 4}};
  attention.params = {{"unused", DType::i32, {}}};
  attention.tensors = {{"unread", DType::i8, {attention.dag.dim("Sq")}, {}}};
  attention.wants_lse = true;
  attention.dims.set(ir::Dim::Sq, std::nullopt);
  EXPECT_EQ(ir::to_text(simplify(attention)), ir::to_text(attention));
}

TEST(Simplify, KeepsPlaces) {
  ir::Attention attention = masks::testing::example(6, kColumns);
  ir::Dag& dag = attention.dag;
  const ExprId less = dag.add(Op::lt_, {dag.leaf(Op::row_), dag.leaf(Op::column_)}, {7, 3});
  attention.masks = {dag.add(Op::not_, {less}, {7, 1})};
  const ir::Attention after = simplify(attention);
  ASSERT_EQ(after.masks.size(), 1u);
  EXPECT_TRUE(after.dag[after.masks[0]].is(Op::ge_));
  EXPECT_EQ(after.dag[after.masks[0]].pos.line, 7u);
}

TEST(Simplify, SharedPartsDoNotTakeExponentialTime) {
  ir::Attention attention = masks::testing::example(6, kColumns);
  ir::Dag& dag = attention.dag;
  ExprId mask = dag.add(Op::lt_, {dag.leaf(Op::row_), dag.leaf(Op::column_)});
  ExprId real = dag.add(Op::to_real_, {dag.leaf(Op::row_)});
  for (int i = 0; i < 200; ++i) {
    const ExprId other = dag.add(Op::eq_, {dag.leaf(Op::row_), dag.integer(i)});
    mask = dag.add(Op::and_, {dag.add(Op::or_, {mask, other}), dag.add(Op::or_, {other, mask})});
    real = dag.add(Op::max_, {dag.add(Op::tanh_, {real}), dag.add(Op::exp_, {real})});
  }
  const ExprId compare = dag.add(Op::lt_, {real, dag.real(0.5)});
  attention.masks = {dag.add(Op::not_, {dag.add(Op::and_, {mask, compare})})};
  EXPECT_TRUE(ir::verify(simplify(attention)).ok());
}

}  // namespace
}  // namespace attn::rewrite
