#include "runtime/cudnn/last_words.h"

#include <gtest/gtest.h>

#include "runtime/cudnn/errors.h"

namespace attn::cudnn {
namespace {

TEST(LastWords, OneEntryForEachEngineWithItsDeepestReason) {
  const auto words = parse_last_words(
      "{\"engineId\":5,\"smVersion\":900,\"knobChoices\":{\"CUDNN_KNOB_TYPE_KERNEL_CFG\":-1,"
      "\"CUDNN_KNOB_TYPE_STAGES\":3}}\n"
      "Warning: CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH; Reason: only Blackwell at: x < 1200\n"
      "Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: ptr->isSupported()\n"
      "\n"
      "{\"engineId\":6,\"smVersion\":900,\"knobChoices\":{\"CUDNN_KNOB_TYPE_OF_TOMORROW\":1}}\n"
      "Error: CUDNN_STATUS_NOT_SUPPORTED; Reason: no\n");
  ASSERT_EQ(words.size(), 2U);
  EXPECT_EQ(words[0].choice.engine, 5);
  EXPECT_EQ(words[0].choice.knobs, (std::vector<plan::Knob>{{14, 3}, {24, -1}}));
  EXPECT_EQ(words[0].status, "NOT_SUPPORTED_ARCH_MISMATCH");
  EXPECT_EQ(words[0].reason, "only Blackwell at: x < 1200");
  EXPECT_EQ(words[1].choice.engine, 6);
  EXPECT_TRUE(words[1].choice.knobs.empty());
  EXPECT_EQ(words[1].reason, "no");
}

TEST(LastWords, FailureOfNoEngine) {
  const auto words = parse_last_words("Warning: CUDNN_STATUS_BAD_PARAM; Reason: a != b at: a\n");
  ASSERT_EQ(words.size(), 1U);
  EXPECT_EQ(words[0].choice.engine, -1);
  EXPECT_EQ(words[0].status, "BAD_PARAM");
}

TEST(LastWords, AnotherForm) {
  const auto words = parse_last_words("it is\n\nall wrong\n");
  ASSERT_EQ(words.size(), 1U);
  EXPECT_EQ(words[0].status, "");
  EXPECT_EQ(words[0].reason, "it is all wrong");
  EXPECT_TRUE(parse_last_words("").empty());
  EXPECT_TRUE(parse_last_words("\n\n").empty());
}

TEST(LastWords, ChoiceThatIsNot) {
  EXPECT_EQ(
      parse_last_words("{\"engineId\": \"x\"}\nW: CUDNN_STATUS_A; Reason: b")[0].choice.engine, -1);
  EXPECT_EQ(parse_last_words("{\"engine\"")[0].reason, "{\"engine\"");
}

TEST(Refusals, MissingPartsOfTheInstallationAreNone) {
  EXPECT_TRUE(is_refusal("NOT_SUPPORTED"));
  EXPECT_TRUE(is_refusal("NOT_SUPPORTED_SHAPE"));
  EXPECT_FALSE(is_refusal("NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING"));
  EXPECT_FALSE(is_refusal("NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE"));
  EXPECT_FALSE(is_refusal("INTERNAL_ERROR_COMPILATION_FAILED"));
  EXPECT_FALSE(is_refusal(""));
}

}  // namespace
}  // namespace attn::cudnn
