#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "runtime/cudnn/api.h"
#include "runtime/cudnn/known_bad.h"

namespace attn::cudnn {
namespace {

const Features kMxfp8Backward =
    features_of({Feature::eight_bits, Feature::block_scales, Feature::transposed_values});

TEST(EngineChoices, OfEachRow) {
  std::set<std::string_view> names;
  for (const ChoiceRow& row : engine_choices()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_LE(row.first, row.last) << row.name;
    EXPECT_LE(row.first_sm, row.last_sm) << row.name;
    EXPECT_TRUE(row.features.any()) << row.name;
    EXPECT_GE(row.choice.engine, 0) << row.name;
    EXPECT_FALSE(row.choice.knobs.empty()) << row.name;
    EXPECT_TRUE(std::ranges::is_sorted(row.choice.knobs, {}, &plan::Knob::type)) << row.name;
    EXPECT_FALSE(row.source.empty()) << row.name;
    EXPECT_EQ(choices_for({row.first, row.first_sm, row.features}).size(), 1U) << row.name;
    EXPECT_EQ(choices_for({row.last, row.last_sm, row.features}).size(), 1U) << row.name;
  }
  EXPECT_GE(names.size(), 2U);
}

TEST(EngineChoices, OfTheBackwardWithScalesOfBlocks) {
  const auto at = [](std::int64_t version, std::int64_t sm, const Features& features) {
    return choices_for({version, sm, features});
  };
  ASSERT_EQ(at(92101, 100, kMxfp8Backward).size(), 1U);
  EXPECT_EQ(
      at(92101, 100, kMxfp8Backward)[0].knobs,
      (std::vector<plan::Knob>{{CUDNN_KNOB_TYPE_STAGES, 2}, {CUDNN_KNOB_TYPE_KERNEL_CFG, 31}}));
  ASSERT_EQ(at(92801, 103, kMxfp8Backward).size(), 1U);
  EXPECT_EQ(at(92801, 103, kMxfp8Backward)[0].knobs.size(), 6U);
  EXPECT_TRUE(at(91900, 100, kMxfp8Backward).empty());
  EXPECT_TRUE(at(92801, 90, kMxfp8Backward).empty());
  EXPECT_TRUE(at(92801, 100, features_of({Feature::block_scales})).empty()) << "a forward";
}

}  // namespace
}  // namespace attn::cudnn
