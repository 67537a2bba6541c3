// Tests attnc as the builder of plans; needs cuDNN, but no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/picker/picker.h"
#include "runtime/targets/targets.h"

namespace attn::picker::attnc_tests {
namespace {

using plan::Dim;
using ::testing::HasSubstr;

constexpr const char* kSpec = R"(attention window(w = 32) {
  dims B = 1, Hq = 2, Hkv = 1, Sq, Skv = Sq, D = 64;
  mask q_idx >= kv_idx && q_idx - kv_idx < w;
  lengths q, kv;
}
)";

AttncOptions attnc_for(const std::string& target) {
  AttncOptions options;
  options.command = {ATTNC_PROGRAM};
  options.target = targets::find_target(target).value();
  return options;
}

TEST(AttncBuilder, MakesAPlanForTheTarget) {
  const Builder build = attnc_builder(attnc_for("h200"));
  const auto built = build({kSpec, {{"Sq", "64"}, {"w", "16"}}}, {});
  ASSERT_TRUE(built.ok()) << built.error().to_text();
  ASSERT_EQ(built->plans.size(), 1U);
  const plan::Plan& plan = built->plans[0];
  EXPECT_EQ(plan.spec_text, kSpec);
  EXPECT_EQ(plan.target, targets::find_target("h200").value()) << "name and properties";
  EXPECT_EQ(plan.bindings.at("w"), "16");
  EXPECT_EQ(plan.shape.sizes[Dim::Skv], 64);
  EXPECT_EQ(plan.shape.padded, (std::vector{Dim::B, Dim::Sq, Dim::Skv}));
}

TEST(AttncBuilder, SaysWhatIsWrongWithASpec) {
  const Builder build = attnc_builder(attnc_for("h200"));
  const auto open = build({kSpec, {}}, {});
  ASSERT_FALSE(open.ok());
  EXPECT_EQ(open.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(open.error().message, HasSubstr("Sq"));
  const auto wrong = build({"attention x { dims Q = 1; }", {}}, {});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::invalid_spec);
  EXPECT_THAT(wrong.error().payload, HasSubstr("\"diagnostics\""));
}

// Picks the plans that attnc builds.
TEST(AttncBuilder, ServesAPickerWithSizesThatChange) {
  PickerOptions options;
  options.origin = {kSpec, {{"w", "16"}}};
  options.builder = attnc_builder(attnc_for("h200"));
  const auto picker = Picker<plan::Plan>::create(
      std::move(options), [](const plan::Plan& plan) -> Result<plan::Plan> { return plan; });
  ASSERT_TRUE(picker.ok()) << picker.error().to_text();
  const auto pick = [&](std::int64_t batches, std::int64_t length) {
    return (*picker)->pick({{Dim::B, batches}, {Dim::Sq, length}, {Dim::Skv, length}},
                           {.build = Policy::Build::now});
  };
  const auto built = pick(4, 128);
  ASSERT_TRUE(built.ok()) << built.error().to_text();
  EXPECT_EQ(built->fit, Fit::built);
  EXPECT_EQ(built->forward->program.tensors[0].dims, (std::vector<std::int64_t>{4, 2, 128, 64}));
  EXPECT_EQ(pick(3, 100)->fit, Fit::bucket);
  EXPECT_EQ(pick(3, 100)->forward, built->forward);
  EXPECT_EQ(pick(4, 128)->fit, Fit::exact);
}

}  // namespace
}  // namespace attn::picker::attnc_tests
