// Programs of latent caches: what they bind, what they check, and what is refused.
#include "compiler/engines/native/chosen_keys.h"

#include <gmock/gmock.h>

#include <set>

#include "compiler/driver/driver.h"
#include "runtime/plan/step_tensors.h"
#include "tests/unit/compiler/engines/native/lowered.h"

namespace attn::engines {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::lowered;
using testing::of;
using testing::refusal;

constexpr const char* kSizes =
    "dims B = 2, Hq = 16, Hkv = 1, Sq = 3, Skv = 400, Dqk = 576; values k[0..512];";
constexpr const char* kLists =
    "tensor a: i32[B, Sq, 64]; tensor n: i32[B, Sq]; gather a, n; lengths kv;";

std::vector<std::string> bound(const NativeProgram& made) {
  std::vector<std::string> names;
  for (const plan::TensorInfo& tensor : made.program.tensors) names.push_back(tensor.name);
  return names;
}

TEST(NativeLatent, BindsNoV) {
  const auto made = lowered(std::string(kSizes) + "layout paged(page = 16); lengths kv;");
  ASSERT_TRUE(made.ok()) << made.error().to_text();
  EXPECT_THAT(bound(*made), ElementsAre("q", "k", "lengths_kv", "page_table", "o"));
  EXPECT_THAT(testing::step_of(*made).source, HasSubstr("kValuesOfKeys = true"));
  EXPECT_THROW(testing::map_of(*made, "v"), std::runtime_error);
}

TEST(NativeLatent, ReadsEachKeyOnce) {
  const std::string dims = "dims B = 2, Hq = 16, Hkv = 1, Sq = 1, Skv = 4096, Dqk = 576, Dv = 512;";
  const auto both = lowered(dims), one = lowered(dims + "values k[0..512];");
  ASSERT_TRUE(both.ok() && one.ok());
  EXPECT_EQ(one->work.read * (576 + 512), both->work.read * 576);
}

TEST(NativeChosen, BindsTheTensorsOfTheSpec) {
  const auto made = lowered(std::string(kSizes) + kLists + "layout paged(page = 16);");
  ASSERT_TRUE(made.ok()) << made.error().to_text();
  EXPECT_THAT(bound(*made), ElementsAre("q", "k", "lengths_kv", "a", "n", "page_table", "o"));
  std::set<std::string> known;
  for (const plan::TensorInfo& tensor : made->program.tensors) known.insert(tensor.name);
  for (const plan::TensorInfo& tensor : made->program.internals) known.insert(tensor.name);
  plan::Step step = made->program.steps.back();
  plan::change_tensors(step, [&](const plan::TensorOperand& tensor) {
    EXPECT_TRUE(known.contains(tensor.name)) << tensor.name;
  });
}

TEST(NativeChosen, ChecksListsAndCounts) {
  const auto faults = [](const std::string& clauses) {
    const auto made = lowered(clauses);
    std::vector<std::string> texts;
    if (!made.ok() || !made->program.check) return texts;
    for (const auto& fault : made->program.check->faults) texts.push_back(fault.expression);
    return texts;
  };
  EXPECT_THAT(faults(std::string(kSizes) + kLists),
              ElementsAre("keys[a[b, q_idx, kv_idx]]", "list[n[b, q_idx]]"));
  EXPECT_THAT(faults(std::string(kSizes) + "tensor a: i32[B, Sq, 64]; gather a;"),
              ElementsAre("keys[a[b, q_idx, kv_idx]]"));
  EXPECT_THAT(faults(kSizes), IsEmpty());
}

TEST(NativeChosen, WorkIsThatOfTheLists) {
  const std::string dims = "dims B = 2, Hq = 64, Hkv = 1, Sq = 3, Dqk = 576, Skv = ";
  const auto of_cache = [&](const char* keys) {
    return lowered(dims + keys + "; values k[0..512]; tensor a: i32[B, Sq, 64]; gather a;");
  };
  const auto small = of_cache("400"), large = of_cache("40000");
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_EQ(small->work.scores, large->work.scores);
  EXPECT_EQ(small->work.scores, 2 * 3 * 64 * 64);
  EXPECT_EQ(small->work.gathered, large->work.gathered);
}

TEST(NativeChosen, RefusesInWords) {
  const auto why = [](const std::string& clauses) {
    return refusal(
        "dims B = 2, Hq = 4, Sq = 3, Skv = 400, D = 64; tensor a: i32[B, Sq, 64];"
        "gather a;" +
        clauses);
  };
  EXPECT_EQ(why(""), "");
  EXPECT_THAT(why("layout thd;"), HasSubstr("packed sequences"));
  EXPECT_THAT(why("lengths q;"), HasSubstr("all rows of a batch"));
  EXPECT_THAT(why("epilogue 2 * o;"), HasSubstr("without an epilogue"));
  EXPECT_THAT(why("layout k: bhsd;"), HasSubstr("one layout"));
  EXPECT_THAT(why("layout q: bhsd, o: sbhd;"), "");
}

TEST(Latent, OtherEnginesAndBackwardsSayWhatServes) {
  for (const std::string& clauses : {std::string(kSizes), std::string(kSizes) + kLists}) {
    const ir::Attention attention = of(clauses);
    const auto forward = driver::lower(attention, "composite", plan::Direction::forward);
    ASSERT_FALSE(forward.ok());
    EXPECT_THAT(forward.error().to_text(), HasSubstr("--engine native"));
    const auto backward = driver::lower(attention, "native", plan::Direction::backward);
    ASSERT_FALSE(backward.ok());
    EXPECT_THAT(backward.error().message, HasSubstr("no gradients"));
  }
}

}  // namespace
}  // namespace attn::engines
