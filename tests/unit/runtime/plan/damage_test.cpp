// What became of a plan file on its way: cut off, changed in one place, not a plan at all.
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

const std::string& sample_bytes() {
  static const std::string bytes = serialize(testing::sample_plan());
  return bytes;
}

// On a heap block of its own, so that reading past the end shows under a sanitizer.
Result<Plan> read_exactly(std::string_view bytes) {
  const std::vector<char> copy(bytes.begin(), bytes.end());
  return deserialize({copy.data(), copy.size()});
}

TEST(PlanDamage, EveryTruncationIsSeenAsOne) {
  for (std::size_t length = 0; length < sample_bytes().size(); ++length) {
    const Result<Plan> plan = read_exactly(std::string_view(sample_bytes()).substr(0, length));
    ASSERT_FALSE(plan.ok()) << length;
    ASSERT_EQ(plan.error().code, ErrorCode::plan_truncated) << length;
  }
}

TEST(PlanDamage, EveryFlipOfEveryBitIsSeen) {
  std::string bytes = sample_bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int mask : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
      bytes[i] = static_cast<char>(bytes[i] ^ mask);
      const Result<Plan> plan = read_exactly(bytes);
      ASSERT_FALSE(plan.ok()) << i;
      // The magic is what makes a file ours; all else is under a checksum.
      ASSERT_EQ(plan.error().code, i < 8 ? ErrorCode::plan_foreign : ErrorCode::plan_damaged) << i;
      bytes[i] = static_cast<char>(bytes[i] ^ mask);
    }
  }
}

TEST(PlanDamage, EveryLostOrDoubledByteIsSeen) {
  for (std::size_t i = 0; i < sample_bytes().size(); ++i) {
    std::string lost = sample_bytes();
    lost.erase(i, 1);
    ASSERT_FALSE(read_exactly(lost).ok()) << i;
    std::string doubled = sample_bytes();
    doubled.insert(i, 1, doubled[i]);
    ASSERT_FALSE(read_exactly(doubled).ok()) << i;
  }
}

// Checksums that fit say that the file is as it was written, not that what was written is right.
TEST(PlanDamage, EveryFlipUnderFittingChecksumsIsSeenOrHarmless) {
  const Plan original = testing::sample_plan();
  std::size_t accepted = 0;
  for (std::size_t i = 8; i < sample_bytes().size(); ++i) {
    for (int mask : {1, 8, 64}) {
      std::string bytes = sample_bytes();
      bytes[i] = static_cast<char>(bytes[i] ^ mask);
      const Result<Plan> plan = read_exactly(testing::resealed(bytes));
      if (!plan.ok()) continue;
      ++accepted;
      // Only what no signature covers: texts for people and what cuDNN said about its plan.
      ASSERT_EQ(canonical_text(plan->program), canonical_text(original.program)) << i;
      ASSERT_EQ(plan->target, original.target) << i;
      ASSERT_EQ(plan->cudnn_version, original.cudnn_version) << i;
      ASSERT_EQ(plan->signature, original.signature) << i;
      ASSERT_EQ(plan->compiled[0].cudnn_plan, original.compiled[0].cudnn_plan) << i;
    }
  }
  EXPECT_GT(accepted, 0U);
}

TEST(PlanDamage, OtherFilesAreForeign) {
  const std::string others[] = {
      "hello",
      "\x7F"
      "ELF\x02\x01\x01",
      "{\"format\": 1}",
      std::string(1000, '\0'),
      std::string("\x89PNG\r\n\x1a\n", 8),
      // Ours after a transfer that rewrote its line ends.
      std::string("\x89"
                  "ATN\n\x1a\n",
                  7) +
          sample_bytes().substr(8),
  };
  for (const std::string& bytes : others) {
    const Result<Plan> plan = read_exactly(bytes);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().code, ErrorCode::plan_foreign) << bytes.substr(0, 8);
  }
}

}  // namespace
}  // namespace attn::plan
