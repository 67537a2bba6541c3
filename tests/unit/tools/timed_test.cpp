#include "tools/timed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tools/spec_text.h"

namespace attn::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kTimedSpec = R"(attention t {
  dims B = 3, Hq = 1, Sq = 4, Skv = 30, D = 8;
  lengths q, kv = (i0 + 1) * Skv // B;
  param n: i32;
  mask kv_idx < n;
  outputs o;
})";

TEST(Timed, LengthsAreThoseThatTheSpecDeclares) {
  const Spec spec = spec_of(kTimedSpec);
  const reference::Inputs values = timed_values(spec.attention, {}).value();
  EXPECT_THAT(values.tensors.at("lengths_kv").values, ElementsAre(10, 20, 30));
  EXPECT_THAT(values.tensors.at("lengths_q").values, ElementsAre(4, 4, 4));  // none declared: all
  EXPECT_EQ(values.params.count("n"), 0U);
}

TEST(Timed, InputsThatAreGivenComeBeforeDefaults) {
  const Spec spec = spec_of(kTimedSpec);
  const InputTexts texts = {{"lengths_kv", "const:7"}, {"n", "5"}};
  const reference::Inputs values = timed_values(spec.attention, texts).value();
  EXPECT_THAT(values.tensors.at("lengths_kv").values, ElementsAre(7, 7, 7));
  EXPECT_EQ(values.params.at("n"), 5);
}

TEST(Timed, InputsThatCannotBeAreRefused) {
  const Spec spec = spec_of(kTimedSpec);
  const auto unknown = timed_values(spec.attention, {{"m", "5"}});
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, HasSubstr("no such tensor or param"));
  const auto long_ones = timed_values(spec.attention, {{"lengths_kv", "const:31"}});
  ASSERT_FALSE(long_ones.ok());
  EXPECT_THAT(long_ones.error().message, HasSubstr("lengths_kv"));
}

}  // namespace
}  // namespace attn::tools
