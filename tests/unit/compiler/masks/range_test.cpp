#include "compiler/masks/range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "compiler/masks/boxes.h"
#include "tests/unit/compiler/masks/example.h"
#include "tests/unit/compiler/masks/random_mask.h"

namespace attn::masks {
namespace {

using ir::Op;

class RangeTest : public ::testing::Test {
 protected:
  Range range(ir::ExprId id) { return range_of(attention_, id); }

  ir::Attention attention_ = testing::example(16, 32);
  ir::Dag& dag_ = attention_.dag;
  ir::ExprId row_ = dag_.leaf(Op::row_);
  ir::ExprId column_ = dag_.leaf(Op::column_);
};

TEST_F(RangeTest, IndicesFollowTheDimensions) {
  EXPECT_EQ(range(row_), (Range{0, 15}));
  EXPECT_EQ(range(column_), (Range{0, 31}));
  EXPECT_EQ(range(dag_.leaf(Op::head_)), (Range{0, 3}));
  EXPECT_EQ(range(dag_.leaf(Op::batch_)), (Range{0, 1}));
}

TEST_F(RangeTest, OpenDimensionsAreOnlyNotNegative) {
  attention_.dims.set(ir::Dim::Sq, std::nullopt);
  EXPECT_EQ(range(row_), (Range{0, INT32_MAX}));
  EXPECT_EQ(range(dag_.dim("Sq")), (Range{1, INT32_MAX}));
}

TEST_F(RangeTest, LengthsLieWithinTheirSizes) {
  attention_.tensors.push_back({std::string(ir::kLengthsKv), DType::i32, {dag_.integer(2)}, {}});
  const ir::ExprId batch[] = {dag_.leaf(Op::batch_)};
  const auto length =
      dag_.add_symbol(Op::load_, std::string(ir::kLengthsKv), ir::Type::integer, batch);
  EXPECT_EQ(range(length), Range{});  // just a tensor of that name
  attention_.lengths_kv = true;
  EXPECT_EQ(range(length), (Range{0, 32}));
  attention_.dims.set(ir::Dim::Skv, std::nullopt);
  EXPECT_EQ(range(length), (Range{0, INT32_MAX}));
}

// Knows that each element is its index, and nothing of params.
class Identity : public KnownInputs {
 public:
  std::optional<Range> elements(std::string_view, std::span<const Range> indexes) const override {
    return indexes[0];
  }
  std::optional<Range> param(std::string_view) const override { return std::nullopt; }
};

TEST_F(RangeTest, OfKnownInputs) {
  const ir::ExprId indexes[] = {column_};
  const ir::ExprId roots[] = {dag_.add_symbol(Op::load_, "ids", ir::Type::integer, indexes),
                              dag_.add_symbol(Op::param_, "n", ir::Type::integer)};
  const Identity known;
  Ranges ranges(attention_, roots, &known);
  Box box = whole_box(attention_);
  box.column = {3, 5};
  ranges.look_at(box);
  EXPECT_EQ(ranges[roots[0]], (Range{3, 5}));
  EXPECT_EQ(ranges[roots[1]], Range{});
}

TEST_F(RangeTest, Arithmetic) {
  const auto difference = dag_.add(Op::sub_, {row_, column_});
  EXPECT_EQ(range(difference), (Range{-31, 15}));
  EXPECT_EQ(range(dag_.add(Op::abs_, {difference})), (Range{0, 31}));
  EXPECT_EQ(range(dag_.add(Op::neg_, {difference})), (Range{-15, 31}));
  EXPECT_EQ(range(dag_.add(Op::mul_, {difference, dag_.integer(-2)})), (Range{-30, 62}));
  EXPECT_EQ(range(dag_.add(Op::min_, {row_, column_})), (Range{0, 15}));
  EXPECT_EQ(range(dag_.add(Op::max_, {row_, column_})), (Range{0, 31}));
}

TEST_F(RangeTest, DivisionRoundsDown) {
  const auto difference = dag_.add(Op::sub_, {row_, column_});
  EXPECT_EQ(range(dag_.add(Op::floordiv_, {difference, dag_.integer(4)})), (Range{-8, 3}));
  EXPECT_EQ(range(dag_.add(Op::mod_, {difference, dag_.integer(4)})), (Range{0, 3}));
  EXPECT_EQ(range(dag_.add(Op::mod_, {row_, dag_.integer(100)})), (Range{0, 15}));
  EXPECT_EQ(range(dag_.add(Op::mod_, {row_, dag_.integer(-4)})), Range{});
}

TEST_F(RangeTest, ValuesThatMayWrapAreUnknown) {
  const auto big = dag_.add(Op::mul_, {column_, dag_.integer(INT32_MAX)});
  EXPECT_EQ(range(big), Range{});
}

TEST_F(RangeTest, TheEndsOf32BitsWrap) {
  const auto lowest = dag_.integer(INT32_MIN), highest = dag_.integer(INT32_MAX);
  EXPECT_EQ(range(dag_.add(Op::neg_, {lowest})), Range{});
  EXPECT_EQ(range(dag_.add(Op::abs_, {lowest})), Range{});
  EXPECT_EQ(range(dag_.add(Op::add_, {highest, row_})), Range{});
  EXPECT_EQ(range(dag_.add(Op::sub_, {lowest, row_})), Range{});
  EXPECT_EQ(range(dag_.add(Op::floordiv_, {lowest, dag_.integer(-1)})), Range{});
  EXPECT_EQ(range(dag_.add(Op::add_, {highest, dag_.integer(0)})), (Range{INT32_MAX, INT32_MAX}));
}

TEST_F(RangeTest, ComparisonsAreTrueFalseOrEither) {
  const auto inside = dag_.add(Op::lt_, {row_, dag_.integer(16)});
  EXPECT_TRUE(range(inside).is_true());
  EXPECT_TRUE(range(dag_.add(Op::not_, {inside})).is_false());
  EXPECT_EQ(range(dag_.add(Op::lt_, {row_, dag_.integer(15)})), (Range{0, 1}));
  EXPECT_TRUE(range(dag_.add(Op::ge_, {row_, dag_.integer(16)})).is_false());
}

TEST_F(RangeTest, CapturedElementsAreUnknown) {
  attention_.tensors.push_back({"doc", DType::i32, {dag_.integer(16)}, {}});
  const ir::ExprId index[] = {row_};
  EXPECT_EQ(range(dag_.add_symbol(Op::load_, "doc", ir::Type::integer, index)), Range{});
}

// Halves a random box until it holds one score: what boxes within one evaluate gives the same
// ranges as the whole expression.
class HalvingTest : public RangeTest {
 protected:
  void SetUp() override {
    attention_ = testing::example(16, 32);
    row_ = dag_.leaf(Op::row_);
    column_ = dag_.leaf(Op::column_);
    attention_.tensors.push_back({"t", DType::i32, {dag_.integer(32)}, {}});
    attention_.tensors.push_back({"f", DType::boolean, {dag_.integer(32)}, {}});
    const ir::ExprId at[] = {column_};
    read_ = dag_.add_symbol(Op::load_, "t", ir::Type::integer, at);
    flag_ = dag_.add_symbol(Op::load_, "f", ir::Type::boolean, at);
  }

  Box half(const Box& box) {
    const std::int64_t rows = box.row.high - box.row.low,
                       columns = box.column.high - box.column.low;
    const auto [first, second] = halves(box, rows > columns ? &Box::row : &Box::column);
    return random_() % 2 == 0 ? first : second;
  }

  void compare(Ranges& narrow, Ranges& whole) {
    Box box = whole_box(attention_);
    box.batch = box.head = {0, 0};
    std::map<ir::ExprId, Range> last;
    for (Unsettled within = narrow.all();; box = half(box), within = narrow.unsettled()) {
      narrow.look_at(box, within);
      whole.look_at(box);
      EXPECT_LE(within->steps.size(), whole.all()->steps.size());
      for (const ir::ExprId root : within->roots) {
        EXPECT_EQ(narrow[root], whole[root]);
        last[root] = narrow[root];
      }
      bool is_undecided = false;
      for (const ir::ExprId root : whole.all()->roots) {
        EXPECT_EQ(last[root], whole[root]) << "settled";
        const bool is_open = std::ranges::find(within->roots, root) != within->roots.end();
        is_undecided |= !is_open && last[root].low != last[root].high;
      }
      EXPECT_EQ(within->has_undecided_root, is_undecided);
      if (is_single(box)) return;
    }
  }

  std::mt19937_64 random_{7};
  ir::ExprId read_ = 0, flag_ = 0;
};

TEST_F(HalvingTest, EvaluatesWhatIsUnsettled) {
  constexpr int kMasks = 150;
  for (int i = 0; i < kMasks && !HasFailure(); ++i) {
    SetUp();
    testing::RandomMask mask(attention_, random_, {read_, row_, column_}, {flag_});
    const std::vector<ir::ExprId> roots = {mask.boolean(4), mask.boolean(2), mask.integer(3)};
    for (const Wrapping wrapping : {Wrapping::unknown, Wrapping::followed}) {
      Ranges narrow(attention_, roots, nullptr, wrapping);
      Ranges whole(attention_, roots, nullptr, wrapping);
      compare(narrow, whole);
    }
  }
}

TEST_F(HalvingTest, LeavesOutWhatABoxDecides) {
  ir::ExprId any = dag_.boolean(false);
  for (int i = 0; i < 100; ++i) {
    any = dag_.add(
        Op::or_, {any, dag_.add(Op::eq_, {row_, dag_.add(Op::mul_, {column_, dag_.integer(i)})})});
  }
  const ir::ExprId roots[] = {any};
  Ranges ranges(attention_, roots);
  Box box = whole_box(attention_);
  box.row = {8, 15};
  box.column = {1, 2};
  ranges.look_at(box);
  // Those by 4 to 15, with a product and a comparison each, their `or`, the row and the column.
  EXPECT_LT(ranges.unsettled()->steps.size(), 3 * 13);
}

TEST_F(HalvingTest, KnowsWhatNoSmallerBoxDecides) {
  const ir::ExprId same = dag_.add(Op::eq_, {dag_.add(Op::sub_, {row_, read_}), column_});
  const ir::ExprId below = dag_.add(Op::lt_, {column_, row_});
  const ir::ExprId roots[] = {same, below, flag_};
  Ranges ranges(attention_, roots);
  ranges.look_at(whole_box(attention_));
  EXPECT_TRUE(ranges.is_settled(same));
  EXPECT_FALSE(ranges.is_settled(below));
  EXPECT_TRUE(ranges.is_settled(flag_));
}

}  // namespace
}  // namespace attn::masks
