#include "compiler/masks/band.h"

#include <gtest/gtest.h>

#include <random>

#include "compiler/masks/mask_analysis.h"
#include "tests/unit/compiler/masks/example.h"

namespace attn::masks {
namespace {

using ir::ExprId;
using ir::Op;

MaskForm form_of(const ir::Attention& attention) { return analyzed(attention, {})->form(); }

class BandTest : public ::testing::Test {
 protected:
  MaskForm form(std::initializer_list<ExprId> masks) {
    attention_.masks = masks;
    return form_of(attention_);
  }
  ExprId integer(std::int64_t value) { return dag_.integer(value); }

  ir::Attention attention_ = testing::example(64, 64);
  ir::Dag& dag_ = attention_.dag;
  ExprId row_ = dag_.leaf(Op::row_);
  ExprId column_ = dag_.leaf(Op::column_);
  ExprId distance_ = dag_.add(Op::sub_, {row_, column_});
};

void expect_band(const MaskForm& form, std::optional<std::int64_t> left,
                 std::optional<std::int64_t> right) {
  EXPECT_EQ(form.band.left, left);
  EXPECT_EQ(form.band.right, right);
}

TEST_F(BandTest, Causal) {
  const auto result = form({dag_.add(Op::ge_, {row_, column_})});
  expect_band(result, std::nullopt, 0);
  EXPECT_TRUE(result.residual.empty());
}

TEST_F(BandTest, SlidingWindowShowsWTokens) {
  expect_band(
      form({dag_.add(Op::ge_, {row_, column_}), dag_.add(Op::lt_, {distance_, integer(8)})}), 7, 0);
}

TEST_F(BandTest, SymmetricWindowThroughAbs) {
  const auto magnitude = dag_.add(Op::abs_, {distance_});
  expect_band(form({dag_.add(Op::le_, {magnitude, integer(5)})}), 5, 5);
  expect_band(form({dag_.add(Op::gt_, {integer(5), magnitude})}), 4, 4);
}

TEST_F(BandTest, AbsOnTheLargeSideIsNoBand) {
  const auto magnitude = dag_.add(Op::abs_, {distance_});
  const auto result = form({dag_.add(Op::ge_, {magnitude, integer(5)})});
  expect_band(result, std::nullopt, std::nullopt);
  EXPECT_EQ(result.residual.size(), 1u);
}

TEST_F(BandTest, TheTightestBoundWinsAndIsPlaced) {
  const auto loose = dag_.add(Op::lt_, {distance_, integer(9)}, {3, 1});
  const auto tight = dag_.add(Op::lt_, {distance_, integer(4)}, {4, 1});
  const auto result = form({loose, tight});
  expect_band(result, 3, std::nullopt);
  EXPECT_EQ(result.band.left_pos.line, 4u);
}

TEST_F(BandTest, CommonFactorsRoundTowardsTheMask) {
  // 2 (row - column) <= 7  <=>  row - column <= 3
  const auto twice = dag_.add(Op::mul_, {integer(2), distance_});
  expect_band(form({dag_.add(Op::le_, {twice, integer(7)})}), 3, std::nullopt);
  // 2 (row - column) >= -7  <=>  column - row <= 3
  expect_band(form({dag_.add(Op::ge_, {twice, integer(-7)})}), std::nullopt, 3);
}

TEST_F(BandTest, BoundsMetEverywhereAreDropped) {
  attention_.dims.set(ir::Dim::Sq, 1);
  const auto last = dag_.add(Op::add_, {row_, integer(63)});
  expect_band(form({dag_.add(Op::ge_, {last, column_})}), std::nullopt, std::nullopt);
}

TEST_F(BandTest, WhatCouldWrapAroundIsResidual) {
  const auto far = dag_.add(Op::add_, {row_, integer(INT32_MAX)});
  const auto result = form({dag_.add(Op::ge_, {far, column_})});
  expect_band(result, std::nullopt, std::nullopt);
  EXPECT_EQ(result.residual.size(), 1u);
}

TEST_F(BandTest, BoundsThatNothingMeetsStaySmall) {
  const auto never = dag_.add(Op::le_, {dag_.add(Op::sub_, {column_, row_}), integer(-2000000000)});
  expect_band(form({never}), std::nullopt, -64);
  const auto nor = dag_.add(Op::le_, {distance_, integer(-2000000000)});
  expect_band(form({nor}), -64, std::nullopt);
}

TEST_F(BandTest, OtherMasksAreResidual) {
  const auto prefix = dag_.add(Op::lt_, {column_, integer(16)});
  const auto result = form({prefix, dag_.add(Op::ge_, {row_, column_})});
  expect_band(result, std::nullopt, 0);
  EXPECT_EQ(result.residual, std::vector<ExprId>{prefix});
}

TEST_F(BandTest, AnEqualityWithoutSolutionsIsResidual) {
  const auto twice = dag_.add(Op::mul_, {integer(2), distance_});
  expect_band(form({dag_.add(Op::eq_, {twice, integer(6)})}), 3, -3);
  EXPECT_EQ(form({dag_.add(Op::eq_, {twice, integer(7)})}).residual.size(), 1u);
}

// Random conjunctions of affine comparisons, each also evaluated directly, without the IR.
class RandomMask {
 public:
  explicit RandomMask(std::uint32_t seed) : random_(seed) {}

  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint32_t>(high - low + 1));
  }

  struct Side {
    std::int64_t row, column, constant;
    bool magnitude;
    std::int64_t at(std::int64_t r, std::int64_t c) const {
      const std::int64_t value = row * r + column * c + constant;
      return magnitude ? std::abs(value) : value;
    }
  };

  Side side() {
    const std::int64_t g = pick(-2, 2);
    if (pick(0, 3) == 0) return {pick(-2, 2), pick(-2, 2), pick(-9, 9), pick(0, 4) == 0};
    return {g, -g, pick(-9, 9), pick(0, 3) == 0};
  }

 private:
  std::mt19937 random_;
};

ExprId build(ir::Dag& dag, const RandomMask::Side& side) {
  const auto term = [&](std::int64_t factor, Op leaf) {
    return dag.add(Op::mul_, {dag.integer(factor), dag.leaf(leaf)});
  };
  ExprId id = dag.add(Op::add_, {term(side.row, Op::row_), term(side.column, Op::column_)});
  id = dag.add(Op::add_, {id, dag.integer(side.constant)});
  return side.magnitude ? dag.add(Op::abs_, {id}) : id;
}

bool compare(Op op, std::int64_t x, std::int64_t y) {
  switch (op) {
    case Op::lt_: return x < y;
    case Op::le_: return x <= y;
    case Op::gt_: return x > y;
    case Op::ge_: return x >= y;
    case Op::eq_: return x == y;
    default: return x != y;
  }
}

TEST(BandProperty, BandAndResidualShowWhatTheMaskShows) {
  constexpr std::int64_t kRows = 7, kColumns = 9;
  constexpr Op kOps[] = {Op::lt_, Op::le_, Op::gt_, Op::ge_, Op::eq_, Op::ne_};
  int bands = 0;
  for (std::uint32_t seed = 0; seed < 5000; ++seed) {
    RandomMask random(seed);
    ir::Attention attention = testing::example(kRows, kColumns);
    const RandomMask::Side x = random.side(), y = random.side();
    const Op op = kOps[random.pick(0, 5)];
    const ExprId mask = attention.dag.add(op, {build(attention.dag, x), build(attention.dag, y)});
    attention.masks = {mask};
    const MaskForm form = form_of(attention);
    bands += form.residual.empty() ? 1 : 0;
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t c = 0; c < kColumns; ++c) {
        const bool dense = compare(op, x.at(r, c), y.at(r, c));
        const bool in_band = (!form.band.right || c - r <= *form.band.right) &&
                             (!form.band.left || r - c <= *form.band.left);
        const bool shown = in_band && (form.residual.empty() || dense);
        ASSERT_EQ(shown, dense) << "seed " << seed << " row " << r << " column " << c;
      }
    }
  }
  EXPECT_GT(bands, 500);
}

// Masks relative to the last diagonal of each batch, also evaluated directly for every pair of
// lengths.
class FromEndTest : public ::testing::TestWithParam<std::pair<bool, bool>> {
 protected:
  static constexpr std::int64_t kRows = 5, kColumns = 7;

  FromEndTest() : attention_(testing::example(kRows, kColumns)) {
    std::tie(attention_.lengths_q, attention_.lengths_kv) = GetParam();
  }

  ExprId length(bool given, const char* name, std::int64_t size) {
    ir::Dag& dag = attention_.dag;
    const std::vector<ExprId> batch{dag.leaf(Op::batch_)};
    return given ? dag.add_symbol(Op::load_, name, ir::Type::integer, batch) : dag.integer(size);
  }

  // row + KV - Q
  ExprId aligned_row() {
    ir::Dag& dag = attention_.dag;
    const ExprId end = dag.add(
        Op::add_, {dag.leaf(Op::row_), length(attention_.lengths_kv, "lengths_kv", kColumns)});
    return dag.add(Op::sub_, {end, length(attention_.lengths_q, "lengths_q", kRows)});
  }

  void expect_shows(const MaskForm& form, std::int64_t from, std::int64_t to) {
    EXPECT_TRUE(form.residual.empty());
    for (std::int64_t q = attention_.lengths_q ? 1 : kRows; q <= kRows; ++q) {
      for (std::int64_t kv = attention_.lengths_kv ? 1 : kColumns; kv <= kColumns; ++kv) {
        for (std::int64_t place = 0; place < q * kv; ++place) {
          const std::int64_t row = place / kv, column = place % kv;
          const std::int64_t distance = column - row - (kv - q);
          const bool shown = (!form.from_end.right || distance <= *form.from_end.right) &&
                             (!form.from_end.left || -distance <= *form.from_end.left);
          ASSERT_EQ(shown, from <= distance && distance <= to) << row << ' ' << column;
        }
      }
    }
  }

  ir::Attention attention_;
};

TEST_P(FromEndTest, EveryBand) {
  ir::Dag& dag = attention_.dag;
  const ExprId distance = dag.add(Op::sub_, {dag.leaf(Op::column_), aligned_row()});
  for (std::int64_t from = -9; from <= 9; ++from) {
    for (std::int64_t to = -9; to <= 9; ++to) {
      attention_.masks = {dag.add(Op::le_, {distance, dag.integer(to)}),
                          dag.add(Op::ge_, {distance, dag.integer(from)})};
      const MaskForm form = form_of(attention_);
      EXPECT_FALSE(form.band.left || form.band.right);
      expect_shows(form, from, to);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, FromEndTest,
                         ::testing::Values(std::pair(true, true), std::pair(false, true),
                                           std::pair(true, false)));

TEST_F(BandTest, LengthsOfOneSideAreNoDiagonal) {
  attention_.lengths_q = attention_.lengths_kv = true;
  const ExprId kv = dag_.add_symbol(Op::load_, "lengths_kv", ir::Type::integer,
                                    std::vector{dag_.leaf(Op::batch_)});
  const auto result = form({dag_.add(Op::ge_, {dag_.add(Op::add_, {row_, kv}), column_})});
  EXPECT_EQ(result.residual.size(), 1u);
  EXPECT_EQ(result.from_end, Band{});
}

}  // namespace
}  // namespace attn::masks
