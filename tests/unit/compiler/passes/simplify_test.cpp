// simplify keeps the value of random expressions over awkward numbers: NaN, infinities, -0.0, the
// ends of 32 bits, gathers that may be out of range. (What it makes of each shape is in
// tests/golden/ir.)
#include "compiler/passes/simplify.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "runtime/reference/row_evaluator.h"
#include "tests/unit/compiler/passes/example.h"

namespace attn::passes {
namespace {

using ir::ExprId;
using ir::Op;
using ir::Type;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kColumns = 10;
constexpr double kScores[kColumns] = {0.0,       -0.0,       1.0,   -2.5, kNaN,
                                      kInfinity, -kInfinity, 1e300, 3,    0.5};

class RandomAttention {
 public:
  explicit RandomAttention(unsigned seed) : random_(seed) {
    ir::Dag& dag = attention_.dag;
    attention_.params = {{"p", DType::f32, {}}};
    attention_.tensors = {{"t", DType::f32, {dag.dim("Hq")}, {}},
                          {"n", DType::i32, {dag.dim("Skv")}, {}},
                          {"keep", DType::boolean, {dag.dim("Skv")}, {}}};
  }

  ir::Attention make() && {
    leaves();
    const ExprId score = attention_.score;
    for (int i = 1 + pick(8); i > 0; --i) add_random();
    attention_.score = root();
    for (int i = pick(4) - 1; i > 0; --i) {
      const ExprId mask = any_of(Type::boolean);
      if (!depends_on(mask, score)) attention_.masks.push_back(mask);
    }
    return std::move(attention_);
  }

 private:
  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }

  ExprId any_of(Type type) {
    const auto& list = by_type_[static_cast<std::size_t>(type)];
    // One of the last, which are the deepest, or any; the constants come first.
    const int size = static_cast<int>(list.size());
    const int places[] = {size - 1 - pick(2), pick(size), pick(std::min(size, 8))};
    return list[static_cast<std::size_t>(places[pick(3)])];
  }

  void add(ExprId id) { by_type_[static_cast<std::size_t>(attention_.dag[id].type)].push_back(id); }

  void leaves() {
    ir::Dag& dag = attention_.dag;
    for (bool value : {false, true}) add(dag.boolean(value));
    for (std::int64_t value : {0, 1, 2, -3, 1 << 30}) add(dag.integer(value));
    for (double value : {0.0, -0.0, 1.0, 2.0, 2.5, kInfinity, -kInfinity}) add(dag.real(value));
    for (Op op : {Op::score_, Op::batch_, Op::head_, Op::row_, Op::column_}) add(dag.leaf(op));
    add(dag.dim("Skv"));
    add(dag.add_symbol(Op::param_, "p", Type::real));
    const ExprId column[] = {dag.leaf(Op::column_)};
    add(dag.add_symbol(Op::load_, "n", Type::integer, column));
    add(dag.add_symbol(Op::load_, "keep", Type::boolean, column));
  }

  void add_random() {
    const Op op =
        ir::all_ops()[static_cast<std::size_t>(pick(static_cast<int>(ir::all_ops().size())))];
    const ir::OpInfo& row = ir::info(op);
    if (op == Op::load_) {
      const ExprId index[] = {any_of(Type::integer)};
      return add(attention_.dag.add_symbol(op, "t", Type::real, index));
    }
    if (row.operands <= 0) return;
    add(attention_.dag.add(op, operands(row)));
  }

  std::vector<ExprId> operands(const ir::OpInfo& row) {
    const Type number = pick(2) == 0 ? Type::integer : Type::real;
    const auto of = [&](Type type) {
      std::vector<ExprId> ids;
      for (int i = 0; i < row.operands; ++i) ids.push_back(any_of(type));
      return ids;
    };
    switch (row.rule) {
      case ir::Rule::real_function: return of(Type::real);
      case ir::Rule::logic:
      case ir::Rule::to_int: return of(Type::boolean);
      case ir::Rule::bits: return of(Type::integer);
      case ir::Rule::to_real: return of(pick(2) == 0 ? Type::integer : Type::boolean);
      case ir::Rule::selection: {
        const Type type = static_cast<Type>(pick(3));
        return {any_of(Type::boolean), any_of(type), any_of(type)};
      }
      default: return of(number);
    }
  }

  // The last one half of the time.
  ExprId root() {
    const ExprId last = static_cast<ExprId>(attention_.dag.size() - 1);
    const ExprId id = pick(2) == 0 ? last : any_of(static_cast<Type>(pick(3)));
    return attention_.dag[id].type == Type::real ? id : attention_.dag.add(Op::to_real_, {id});
  }

  bool depends_on(ExprId root, ExprId leaf) {
    const ExprId roots[] = {root};
    const auto ids = ir::reachable(attention_.dag, roots);
    return std::find(ids.begin(), ids.end(), leaf) != ids.end();
  }

  std::mt19937 random_;
  ir::Attention attention_ = testing::example(6, kColumns);
  std::array<std::vector<ExprId>, 3> by_type_;
};

reference::Bindings bindings() {
  reference::Bindings bindings;
  bindings.params["p"] = kNaN;
  bindings.tensors["t"] = {DType::f32, {4}, {kNaN, -0.0, 2.0, -kInfinity}};
  bindings.tensors["n"] = {
      DType::i32, {kColumns}, {0, 1, -1, 2147483647, -2147483648.0, 5, 3, 2, 9, 31}};
  bindings.tensors["keep"] = {DType::boolean, {kColumns}, {1, 0, 0, 1, 1, 0, 1, 0, 1, 1}};
  return bindings;
}

// The score with the masks applied; a hidden one is -inf and misses nothing.
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
    const ir::Attention before = RandomAttention(seed).make();
    ASSERT_TRUE(ir::verify(before).ok()) << ir::verify(before).error().message;
    const ir::Attention after = simplify(before);
    ASSERT_TRUE(ir::verify(after).ok()) << ir::verify(after).error().message;
    ASSERT_EQ(ir::to_text(simplify(after)), ir::to_text(after)) << ir::to_text(before);
    changed += ir::to_text(after) != ir::to_text(before) ? 1 : 0;
    const reference::RowPlace place = {seed % 2, seed % 4, seed % 6};
    const auto expected = visible_scores(before, inputs, place);
    const auto actual = visible_scores(after, inputs, place);
    for (std::size_t column = 0; column < expected.size(); ++column) {
      if (expected[column].fault) continue;  // an error may get lost, a value may not
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
  ir::Attention attention = testing::example(6, kColumns);
  attention.align = ir::Align::bottom_right;
  attention.layouts["q"] = {ir::LayoutKind::strided, {1, 2, 3, 4}};
  attention.params = {{"unused", DType::i32, {}}};
  attention.tensors = {{"unread", DType::i8, {attention.dag.dim("Sq")}, {}}};
  attention.wants_lse = true;
  attention.dims.set(ir::Dim::Sq, std::nullopt);
  EXPECT_EQ(ir::to_text(simplify(attention)), ir::to_text(attention));
}

TEST(Simplify, KeepsPlaces) {
  ir::Attention attention = testing::example(6, kColumns);
  ir::Dag& dag = attention.dag;
  const ExprId less = dag.add(Op::lt_, {dag.leaf(Op::row_), dag.leaf(Op::column_)}, {7, 3});
  attention.masks = {dag.add(Op::not_, {less}, {7, 1})};
  const ir::Attention after = simplify(attention);
  ASSERT_EQ(after.masks.size(), 1u);
  EXPECT_TRUE(after.dag[after.masks[0]].is(Op::ge_));
  EXPECT_EQ(after.dag[after.masks[0]].pos.line, 7u);
}

TEST(Simplify, SharedPartsDoNotTakeExponentialTime) {
  ir::Attention attention = testing::example(6, kColumns);
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
}  // namespace attn::passes
