#include "runtime/picker/plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/picker/picker_testing.h"

namespace attn::picker {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(Plans, AreGroupedByShape) {
  const plan::Bundle bundle{{plan_of(shape_of(4, 8, 8)), plan_of(shape_of(8, 8, 8)),
                             plan_of(shape_of(8, 8, 8, {Dim::Sq}), true),
                             plan_of(shape_of(4, 8, 8), true)}};
  const auto all = by_shape(bundle);
  ASSERT_TRUE(all.ok()) << all.error().to_text();
  ASSERT_EQ(all->size(), 2U);
  EXPECT_EQ((*all)[0].shape, shape_of(4, 8, 8));
  EXPECT_EQ((*all)[0].forward, bundle.plans[0]);
  EXPECT_EQ((*all)[0].backward, bundle.plans[3]);
  EXPECT_EQ((*all)[1].shape, shape_of(8, 8, 8, {Dim::Sq})) << "padded where both are";
  EXPECT_TRUE(by_shape({}).ok());
}

TEST(Plans, ThatCannotBeToldApartAreRefused) {
  const auto refusal = [](const plan::Bundle& bundle) {
    const auto all = by_shape(bundle);
    EXPECT_FALSE(all.ok());
    EXPECT_EQ(all.error().code, ErrorCode::invalid_argument);
    return all.error().message;
  };
  const plan::Plan plan = plan_of(shape_of(4, 8, 8));
  EXPECT_THAT(refusal({{plan, plan}}), HasSubstr("two forward plans for B=4"));
  EXPECT_THAT(refusal({{plan, plan_of(shape_of(8, 8, 8)), plan_of(shape_of(8, 8, 8), true)}}),
              HasSubstr("do not have the same directions"));
}

TEST(Plans, OfOtherGpusAreLeftOut) {
  plan::Plan here = plan_of(shape_of(4, 8, 8)), other = here;
  other.target.sm = 80;
  const std::int64_t sm = here.target.sm;
  EXPECT_EQ(for_device({{here, other}}, sm, true)->plans, std::vector{here});
  EXPECT_EQ(for_device({{here, other}}, 120, true).error().code, ErrorCode::plan_device);
  EXPECT_EQ(for_device({{here, other}}, 120, false)->plans, std::vector{here}) << "does not fit";
  const plan::Plan alone = plan_of(shape_of(4, 16, 8));
  plan::Plan foreign = alone;
  foreign.target.sm = 80;
  EXPECT_EQ(for_device({{other, here, foreign}}, sm, true)->plans, (std::vector{here, foreign}));
}

TEST(Plans, SizesOfARequestReplaceThoseOfThePlans) {
  plan::Bundle bundle{{plan_of(shape_of(4, 8, 8)), plan_of(shape_of(4, 16, 8))}};
  auto origin = origin_of(bundle);
  ASSERT_TRUE(origin.ok()) << origin.error().to_text();
  EXPECT_EQ(origin->spec_text, bundle.plans[0].spec_text);
  EXPECT_THAT(origin->bindings, ElementsAre(Pair("B", "4"), Pair("Skv", "8"), Pair("cap", "30")))
      << "Sq was bound to two sizes";
  EXPECT_THAT(request_for(*origin, {{Dim::Sq, 9}, {Dim::Skv, 0}}).bindings,
              ElementsAre(Pair("B", "4"), Pair("Skv", "0"), Pair("Sq", "9"), Pair("cap", "30")));
  for (plan::Plan& plan : bundle.plans) plan.bindings["D"] = "8";
  bundle.plans[1].shape.sizes.set(Dim::Dv, 16);
  EXPECT_FALSE(origin_of(bundle)->bindings.contains("D"));
  bundle.plans[1].bindings["cap"] = "50";
  EXPECT_EQ(origin_of(bundle).error().code, ErrorCode::invalid_argument);
  bundle.plans[1].bindings["cap"] = "30";
  bundle.plans[1].spec_text += " ";
  EXPECT_EQ(origin_of(bundle).error().code, ErrorCode::invalid_argument);
}

TEST(Plans, ThatWereBuiltAreOfTheSizesThatWereWanted) {
  const plan::Bundle bundle{{plan_of(shape_of(4, 8, 8))}};
  EXPECT_TRUE(built_plans(bundle, {{Dim::B, 4}}).ok());
  const auto others = built_plans(bundle, sizes(4, 8, 9));
  ASSERT_FALSE(others.ok());
  EXPECT_EQ(others.error().code, ErrorCode::plan_shape);
  EXPECT_THAT(others.error().message,
              HasSubstr("asked for B=4 Sq=8 Skv=9, but built plans for B=4"));
  EXPECT_FALSE(built_plans({}, {{Dim::B, 4}}).ok());
  EXPECT_FALSE(
      built_plans({{plan_of(shape_of(4, 8, 8)), plan_of(shape_of(4, 9, 8))}}, {{Dim::B, 4}}).ok());
}

// A pair with only one plan for this machine is dropped.
TEST(Plans, APairFitsAsAWhole) {
  for (const bool backward : {false, true}) {
    plan::Bundle bundle{{plan_of(shape_of(4, 8, 8)), plan_of(shape_of(8, 8, 8)),
                         plan_of(shape_of(8, 8, 8), true), plan_of(shape_of(4, 8, 8), true)}};
    const plan::Plan unfit = bundle.plans[backward ? 3 : 0];
    const std::vector<std::string> reasons =
        drop_unfit(bundle, [&](const plan::Plan& plan) -> Status {
          if (plan == unfit) return {ErrorCode::plan_device, "another GPU"};
          return {};
        });
    ASSERT_EQ(reasons.size(), 1U);
    EXPECT_THAT(reasons[0], HasSubstr("B=4"));
    EXPECT_THAT(reasons[0], HasSubstr("does not fit: another GPU"));
    const auto all = by_shape(bundle);
    ASSERT_TRUE(all.ok()) << all.error().to_text();
    ASSERT_EQ(all->size(), 1U);
    EXPECT_EQ((*all)[0].shape, shape_of(8, 8, 8));
  }
}

// Pairs for two machines in one file.
TEST(Plans, APairThatFitsStaysBesideOneThatDoesNot) {
  plan::Bundle bundle{{plan_of(shape_of(4, 8, 8)), plan_of(shape_of(4, 8, 8), true),
                       plan_of(shape_of(4, 8, 8)), plan_of(shape_of(4, 8, 8), true)}};
  bundle.plans[2].target.sm = bundle.plans[3].target.sm = 100;
  const std::int64_t here = bundle.plans[0].target.sm;
  const auto reasons = drop_unfit(bundle, [here](const plan::Plan& plan) -> Status {
    if (plan.target.sm != here) return {ErrorCode::plan_device, "another GPU"};
    return {};
  });
  EXPECT_EQ(reasons.size(), 2U);
  EXPECT_EQ(bundle.plans.size(), 2U);
  EXPECT_TRUE(by_shape(bundle).ok());
}

TEST(Plans, GiveUpTheirKernels) {
  std::vector<ShapePlans> all = by_shape({{plan_of(shape_of(4, 8, 8))}}).value();
  const plan::Plan before = *all[0].forward;
  EXPECT_FALSE(before.compiled.empty());
  drop_kernels(all[0]);
  EXPECT_TRUE(all[0].forward->compiled.empty());
  EXPECT_TRUE(all[0].forward->kernels.empty());
  EXPECT_EQ(all[0].forward->program, before.program);
  EXPECT_FALSE(all[0].backward.has_value());
}

}  // namespace
}  // namespace attn::picker
