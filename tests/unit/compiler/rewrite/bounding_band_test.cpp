#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "compiler/masks/mask_analysis.h"
#include "compiler/rewrite/ranged.h"
#include "tests/support/contexts.h"
#include "tests/unit/compiler/masks/dense.h"
#include "tests/unit/compiler/masks/example.h"
#include "tests/unit/compiler/masks/random_mask.h"

namespace attn::rewrite::bounding_band_tests {
namespace {

using ir::ExprId;
using ir::Op;
using masks::testing::Dense;

masks::MaskForm form_of(const ir::Attention& attention) {
  return masks::analyzed(attention, {})->form();
}

// The largest visible distances from the diagonal on both sides, by counting.
masks::Band counted(const ir::Attention& attention) {
  const std::int64_t rows = attention.dims[ir::Dim::Sq], columns = attention.dims[ir::Dim::Skv];
  std::optional<std::int64_t> right, left;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      if (!Dense(attention, row, column).all(attention.masks)) continue;
      right = std::max(right.value_or(column - row), column - row);
      left = std::max(left.value_or(row - column), row - column);
    }
  }
  masks::Band band;
  if (right && *right < columns - 1) band.right = right;
  if (left && *left < rows - 1) band.left = left;
  return band;
}

class CoverTest : public ::testing::Test {
 protected:
  masks::Band cover(std::initializer_list<ExprId> masks) {
    attention_.masks = masks;
    return masks::cover_of(attention_);
  }
  ExprId integer(std::int64_t value) { return dag_.integer(value); }
  ExprId binary(Op op, ExprId x, std::int64_t y) { return dag_.add(op, {x, integer(y)}); }

  ir::Attention attention_ = masks::testing::example(256, 256);
  ir::Dag& dag_ = attention_.dag;
  ExprId row_ = dag_.leaf(Op::row_);
  ExprId column_ = dag_.leaf(Op::column_);
};

TEST_F(CoverTest, OfBlocksOnTheDiagonal) {
  const ExprId same =
      dag_.add(Op::eq_, {binary(Op::floordiv_, row_, 32), binary(Op::floordiv_, column_, 32)});
  EXPECT_EQ(cover({same}), (masks::Band{31, 31, {}, {}}));
  EXPECT_EQ(cover({same, dag_.add(Op::ge_, {row_, column_})}), (masks::Band{0, 31, {}, {}}));
}

TEST_F(CoverTest, OfANeighbourhoodInTwoDimensions) {
  const auto near = [&](Op part) {
    const ExprId distance = dag_.add(Op::sub_, {binary(part, row_, 16), binary(part, column_, 16)});
    return binary(Op::le_, dag_.add(Op::abs_, {distance}), 2);
  };
  EXPECT_EQ(cover({near(Op::floordiv_), near(Op::mod_)}), (masks::Band{34, 34, {}, {}}));
}

TEST_F(CoverTest, OfAPrefixAndTheCausalRest) {
  const ExprId causal = dag_.add(Op::ge_, {row_, column_});
  const ExprId prefix = binary(Op::lt_, column_, 40);
  EXPECT_EQ(cover({dag_.add(Op::or_, {causal, prefix})}), (masks::Band{39, std::nullopt, {}, {}}));
}

TEST_F(CoverTest, NothingIsKnownOfCapturedTensors) {
  attention_.tensors.push_back({"doc", DType::i32, {integer(256)}, {}});
  const ExprId q[] = {row_};
  const ExprId k[] = {column_};
  const ExprId same = dag_.add(Op::eq_, {dag_.add_symbol(Op::load_, "doc", ir::Type::integer, q),
                                         dag_.add_symbol(Op::load_, "doc", ir::Type::integer, k)});
  EXPECT_EQ(cover({same}), masks::Band{});
  EXPECT_EQ(cover({same, dag_.add(Op::ge_, {row_, column_})}),
            (masks::Band{0, std::nullopt, {}, {}}));
}

TEST_F(CoverTest, OfNothingIsNoBand) {
  EXPECT_EQ(cover({binary(Op::gt_, row_, 1000)}), masks::Band{});
  EXPECT_EQ(cover({}), masks::Band{});
  attention_.dims.set(ir::Dim::Sq, std::nullopt);
  EXPECT_EQ(cover({dag_.add(Op::ge_, {row_, column_})}), masks::Band{});
}

TEST_F(CoverTest, IsAddedWhereItMakesLessWork) {
  const ExprId same =
      dag_.add(Op::eq_, {binary(Op::floordiv_, row_, 32), binary(Op::floordiv_, column_, 32)});
  attention_.masks = {same};
  const masks::MaskForm form = form_of(with_bounding_band(attention_, {}));
  EXPECT_EQ(form.band.right, 31);
  EXPECT_EQ(form.band.left, 31);
  EXPECT_EQ(form.residual, std::vector{same});
  EXPECT_EQ(with_bounding_band(attention_, attn::testing::in(true)).masks.size(),
            1U);  // a backward would skip nothing

  attention_.masks = {same, dag_.add(Op::ge_, {row_, column_})};
  EXPECT_EQ(form_of(with_bounding_band(attention_, attn::testing::in(true))).band.left, 31);

  attention_.masks = {dag_.add(Op::ne_, {dag_.add(Op::sub_, {row_, column_}), integer(255)})};
  EXPECT_EQ(masks::cover_of(attention_).left, 254);
  EXPECT_EQ(with_bounding_band(attention_, {}).masks.size(), 1U);  // all but one score are inside
}

// From the third row on the product may wrap, so that anything may be visible.
TEST_F(CoverTest, WhatWrapsMayBeAnything) {
  const ExprId far = dag_.add(Op::mul_, {row_, integer(1 << 30)});
  EXPECT_EQ(cover({dag_.add(Op::ge_, {far, column_})}), (masks::Band{254, std::nullopt, {}, {}}));
}

TEST_F(CoverTest, ALeftBoundAloneIsNotAdded) {
  const ExprId behind =
      dag_.add(Op::sub_, {binary(Op::floordiv_, row_, 16), binary(Op::floordiv_, column_, 16)});
  attention_.masks = {binary(Op::le_, behind, 2)};
  EXPECT_EQ(masks::cover_of(attention_).left, 47);
  EXPECT_EQ(with_bounding_band(attention_, {}).masks.size(), 1U);
}

TEST_F(CoverTest, AnExactBandIsLeftAsItIs) {
  attention_.masks = {dag_.add(Op::ge_, {row_, column_})};
  EXPECT_EQ(with_bounding_band(attention_, {}).masks.size(), 1U);
}

// Masks with 1 to 24 rows and columns. Values of all expressions are within their ranges, in random
// boxes too.
TEST(Cover, OfRandomMasksIsWhatIsCounted) {
  std::mt19937_64 random(7);
  const auto size = [&] { return static_cast<std::int64_t>(random() % 24 + 1); };
  int bounded = 0;
  for (int i = 0; i < 2000; ++i) {
    ir::Attention attention = masks::testing::example(size(), size());
    masks::testing::RandomMask mask(attention, random);
    attention.masks = {mask.boolean(2), mask.boolean(1)};
    const masks::Band wanted = counted(attention);
    ASSERT_EQ(masks::cover_of(attention), wanted)
        << ir::to_source(attention, attention.masks[0]) << "  and  "
        << ir::to_source(attention, attention.masks[1]);
    if (wanted.right || wanted.left) ++bounded;
  }
  EXPECT_GT(bounded, 200);
}

TEST(Ranges, HoldTheValuesOfRandomExpressions) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 2000; ++i) {
    ir::Attention attention = masks::testing::example(16, 16);
    masks::testing::RandomMask mask(attention, random);
    const ExprId root = mask.boolean(2);
    masks::Box box = masks::whole_box(attention);
    box.row.low = static_cast<std::int64_t>(random() % 16);
    box.row.high = box.row.low + static_cast<std::int64_t>(random() % (16 - box.row.low));
    box.column.low = box.column.high = static_cast<std::int64_t>(random() % 16);
    const ExprId roots[] = {root};
    masks::Ranges ranges(attention, roots);
    ranges.look_at(box);
    for (std::int64_t row = box.row.low; row <= box.row.high; ++row) {
      const Dense dense(attention, row, box.column.low);
      for (const ExprId id : ir::reachable(attention.dag, roots)) {
        const ir::Constant value = *dense[id];
        const std::int64_t number = std::holds_alternative<bool>(value)
                                        ? static_cast<std::int64_t>(std::get<bool>(value))
                                        : std::get<std::int64_t>(value);
        ASSERT_LE(ranges[id].low, number) << ir::to_source(attention, id);
        ASSERT_GE(ranges[id].high, number) << ir::to_source(attention, id);
      }
    }
  }
}

}  // namespace
}  // namespace attn::rewrite::bounding_band_tests
