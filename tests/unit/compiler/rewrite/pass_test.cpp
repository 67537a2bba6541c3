#include "compiler/rewrite/pass.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/golden.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::rewrite {
namespace {

using ::testing::ElementsAre;

ir::Attention blocks() {
  return masks::testing::of_spec(
      "attention a { dims B = 1, Hq = 2, Sq = 512, D = 64; mask q_idx // 64 == kv_idx // 64; }");
}

TEST(RunPass, ReportsEveryRewrite) {
  std::vector<std::string> seen;
  const target::PassObserver observer = [&seen](const target::PassRun& run) {
    EXPECT_GE(run.milliseconds, 0);
    seen.push_back(fmt::format("{} {}", run.pass, run.after.masks.size()));
  };
  target::Context context;
  context.observer = &observer;
  masks::Effort effort;
  const ir::Attention banded = run_pass("bounding_band", blocks(), context, effort);
  EXPECT_EQ(banded.masks.size(), 3U);
  const auto nothing = run_pass("none", context, [] { return std::optional<ir::Attention>(); });
  EXPECT_FALSE(nothing.has_value());
  EXPECT_THAT(seen, ElementsAre("bounding_band 3"));
}

TEST(RunPass, OfIrThatDoesNotVerifyEndsTheProcess) {
  EXPECT_DEATH((void)run_pass("broken", {},
                              [] {
                                ir::Attention broken = blocks();
                                broken.masks.push_back(broken.score);
                                return broken;
                              }),
               "after broken");
}

TEST(Passes, AreFoundByNameAndInTheManual) {
  std::string table = "| pass | what it does |\n|---|---|\n";
  for (const Pass& pass : all_passes()) {
    EXPECT_EQ(find_pass(pass.name), &pass);
    table += fmt::format("| `{}` | {} |\n", pass.name, pass.what);
  }
  attn::testing::expect_table("docs/cli.md", "passes", table);
  EXPECT_EQ(find_pass("none"), nullptr);
}

TEST(Passes, ChangeNothingOfWhatIsOpen) {
  const ir::Attention open = masks::testing::of_spec("attention a { mask q_idx >= kv_idx; }");
  for (const Pass& pass : all_passes()) {
    EXPECT_EQ(ir::to_text(run_pass(pass.name, open)), ir::to_text(open)) << pass.name;
  }
}

}  // namespace
}  // namespace attn::rewrite
