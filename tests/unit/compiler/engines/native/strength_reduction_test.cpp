#include "compiler/engines/native/strength_reduction.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/compiler/masks/dense.h"
#include "tests/unit/compiler/masks/example.h"
#include "tests/unit/compiler/masks/random_mask.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::native {
namespace {

using masks::testing::masks_of;
using masks::testing::of_clauses;

std::string reduced(const std::string& mask) {
  return masks_of(with_reduced_strength(
      of_clauses(64, 48, "tensor t: i32[Sq]; param p: i32; mask " + mask + ";")));
}

TEST(StrengthReduction, ParityOfAMagnitude) {
  EXPECT_EQ(reduced("abs(kv_idx - q_idx) % 2 == 1"), "(kv_idx - q_idx) % 2 == 1");
  EXPECT_EQ(reduced("abs(t[q_idx] + kv_idx) % 2 == 1"), "(t[q_idx] + kv_idx) % 2 == 1");
  EXPECT_EQ(reduced("abs(kv_idx - q_idx) % 3 == 1"), "abs(kv_idx - q_idx) % 3 == 1");
}

TEST(StrengthReduction, DivisibilityOfAMagnitude) {
  EXPECT_EQ(reduced("abs(kv_idx - q_idx) % 3 == 0"), "(kv_idx - q_idx) % 3 == 0");
  EXPECT_EQ(reduced("0 != abs(t[q_idx] + kv_idx) % 3"), "(t[q_idx] + kv_idx) % 3 != 0");
  EXPECT_EQ(reduced("abs(kv_idx - q_idx) % p == 0"), "abs(kv_idx - q_idx) % p == 0");
}

TEST(StrengthReduction, MagnitudesAreComparedFromBothSides) {
  EXPECT_EQ(reduced("abs(kv_idx - q_idx) <= 6"), "kv_idx - q_idx >= -6 && kv_idx - q_idx <= 6");
  EXPECT_EQ(reduced("6 > abs(kv_idx - q_idx)"), "kv_idx - q_idx > -6 && kv_idx - q_idx < 6");
  EXPECT_EQ(reduced("abs(kv_idx - q_idx) > 6"), "kv_idx - q_idx < -6 || kv_idx - q_idx > 6");
  EXPECT_EQ(reduced("6 <= abs(kv_idx - q_idx)"), "kv_idx - q_idx <= -6 || kv_idx - q_idx >= 6");
}

TEST(StrengthReduction, MagnitudesThatMayWrapAroundStay) {
  EXPECT_EQ(reduced("abs(t[q_idx]) <= kv_idx"), "abs(t[q_idx]) <= kv_idx");
  EXPECT_EQ(reduced("abs(t[q_idx]) <= 6"), "abs(t[q_idx]) <= 6");
  EXPECT_EQ(reduced("abs(kv_idx - q_idx) < p"), "abs(kv_idx - q_idx) < p");
}

TEST(StrengthReduction, ScoresTooAreReduced) {
  const ir::Attention attention = with_reduced_strength(
      of_clauses(64, 48, "score where(abs(kv_idx - q_idx) % 2 == 1, score * 0.5, score * 2);"));
  EXPECT_EQ(ir::to_source(attention, attention.score),
            "score * where((kv_idx - q_idx) % 2 == 1, 0.5, 2.0)");
}

TEST(StrengthReduction, RandomMasksShowTheSame) {
  std::mt19937_64 random(7);
  const auto size = [&] { return static_cast<std::int64_t>(random() % 12 + 1); };
  int changed = 0;
  for (int i = 0; i < 2000; ++i) {
    ir::Attention attention = masks::testing::example(size(), size());
    masks::testing::RandomMask mask(attention, random);
    ir::Dag& dag = attention.dag;
    const ir::ExprId magnitude = dag.add(ir::Op::abs_, {mask.integer(2)});
    const ir::ExprId constant = dag.integer(static_cast<std::int64_t>(random() % 4) + 1);
    const ir::ExprId rest = dag.add(ir::Op::mod_, {magnitude, constant});
    const ir::ExprId other = dag.integer(static_cast<std::int64_t>(random() % 2));
    constexpr ir::Op kOps[] = {ir::Op::lt_, ir::Op::le_, ir::Op::gt_, ir::Op::ge_};
    const ir::Op ordering = kOps[random() % 4];
    attention.masks = {random() % 2 == 0 ? dag.add(ordering, {magnitude, constant})
                                         : dag.add(ordering, {constant, magnitude}),
                       dag.add(random() % 2 == 0 ? ir::Op::eq_ : ir::Op::ne_, {rest, other})};
    const ir::Attention made = with_reduced_strength(attention);
    ASSERT_TRUE(ir::verify(made).ok());
    ASSERT_EQ(masks::testing::shown(made), masks::testing::shown(attention)) << masks_of(attention);
    changed += masks_of(made) != masks_of(attention) ? 1 : 0;
  }
  EXPECT_GT(changed, 500);
}

}  // namespace
}  // namespace attn::engines::native
