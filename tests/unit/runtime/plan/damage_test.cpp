// Damaged plan files: truncated, changed in one place, or not a plan at all.
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::plan {
namespace {

// Files of a plan and of a training pair.
const std::vector<std::string>& samples() {
  static const std::vector<std::string> all = {
      serialize(testing::sample_plan()),
      serialize(Bundle{{testing::sample_plan(), testing::backward_plan()}})};
  return all;
}

// Copies to a separate heap block, so that sanitizers detect reads past the end.
Result<Bundle> read_exactly(std::string_view bytes) {
  const std::vector<char> copy(bytes.begin(), bytes.end());
  return deserialize_bundle({copy.data(), copy.size()});
}

class PlanDamage : public ::testing::TestWithParam<std::size_t> {
 protected:
  const std::string& sample_bytes() const { return samples()[GetParam()]; }
};
INSTANTIATE_TEST_SUITE_P(Of, PlanDamage, ::testing::Range(std::size_t{0}, samples().size()));

TEST_P(PlanDamage, EveryTruncationIsSeenAsOne) {
  for (std::size_t length = 0; length < sample_bytes().size(); ++length) {
    const auto bundle = read_exactly(std::string_view(sample_bytes()).substr(0, length));
    ASSERT_FALSE(bundle.ok()) << length;
    ASSERT_EQ(bundle.error().code, ErrorCode::plan_truncated) << length;
  }
}

TEST_P(PlanDamage, EveryFlipOfEveryBitIsSeen) {
  std::string bytes = sample_bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int mask : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
      bytes[i] = static_cast<char>(bytes[i] ^ mask);
      const auto bundle = read_exactly(bytes);
      ASSERT_FALSE(bundle.ok()) << i;
      // The magic identifies a plan file; everything else has a checksum.
      ASSERT_EQ(bundle.error().code, i < 8 ? ErrorCode::plan_foreign : ErrorCode::plan_damaged)
          << i;
      bytes[i] = static_cast<char>(bytes[i] ^ mask);
    }
  }
}

TEST_P(PlanDamage, EveryLostOrDoubledByteIsSeen) {
  for (std::size_t i = 0; i < sample_bytes().size(); ++i) {
    std::string lost = sample_bytes();
    lost.erase(i, 1);
    ASSERT_FALSE(read_exactly(lost).ok()) << i;
    std::string doubled = sample_bytes();
    doubled.insert(i, 1, doubled[i]);
    ASSERT_FALSE(read_exactly(doubled).ok()) << i;
  }
}

// Only fields not covered by a signature differ: informational text and cuDNN's plan details.
void expect_same_meaning(const Bundle& bundle, const Bundle& original, std::size_t place) {
  ASSERT_EQ(bundle.plans.size(), original.plans.size()) << place;
  for (std::size_t i = 0; i < bundle.plans.size(); ++i) {
    const Plan &plan = bundle.plans[i], &was = original.plans[i];
    ASSERT_EQ(canonical_text(plan.program), canonical_text(was.program)) << place;
    ASSERT_EQ(plan.target, was.target) << place;
    ASSERT_EQ(plan.cudnn_version, was.cudnn_version) << place;
    ASSERT_EQ(plan.signature, was.signature) << place;
    ASSERT_EQ(plan.compiled[0].cudnn_plan, was.compiled[0].cudnn_plan) << place;
  }
}

// Matching checksums show that the file is as written, not that its contents are right.
TEST_P(PlanDamage, EveryFlipUnderFittingChecksumsIsSeenOrHarmless) {
  const Bundle original = deserialize_bundle(sample_bytes()).value();
  std::size_t accepted = 0;
  for (std::size_t i = 8; i < sample_bytes().size(); ++i) {
    for (int mask : {1, 8, 64}) {
      if (original.plans.size() > 1 && mask != 8) continue;  // it is slow
      std::string bytes = sample_bytes();
      bytes[i] = static_cast<char>(bytes[i] ^ mask);
      const auto bundle = read_exactly(testing::resealed(bytes));
      if (!bundle.ok()) continue;
      ++accepted;
      expect_same_meaning(*bundle, original, i);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(accepted, 0U);
}

TEST(ForeignFiles, AreNoPlans) {
  const std::string others[] = {
      "hello",
      "\x7F"
      "ELF\x02\x01\x01",
      "{\"format\": 1}",
      std::string(1000, '\0'),
      std::string("\x89PNG\r\n\x1a\n", 8),
      // The magic after a transfer that rewrote its line endings.
      std::string("\x89"
                  "ATN\n\x1a\n",
                  7) +
          samples()[0].substr(8),
  };
  for (const std::string& bytes : others) {
    const auto bundle = read_exactly(bytes);
    ASSERT_FALSE(bundle.ok());
    EXPECT_EQ(bundle.error().code, ErrorCode::plan_foreign) << bytes.substr(0, 8);
  }
}

}  // namespace
}  // namespace attn::plan
