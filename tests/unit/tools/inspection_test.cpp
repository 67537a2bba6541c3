#include "tools/inspection.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "compiler/target/rewrites.h"
#include "tests/unit/runtime/plan/sample_plans.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Shown, ControlCharactersAreEscaped) {
  EXPECT_EQ(shown("plain caf\u00e9"), "plain caf\u00e9");
  EXPECT_EQ(shown("\x1b[31m\x07\x7f"), "\\x1b[31m\\x07\\x7f");
  EXPECT_EQ(shown("a\n\tb"), "a\\x0a\\x09b");
  EXPECT_EQ(shown_lines("a\n\tb\r"), "a\n\tb\\x0d");
  EXPECT_EQ(shown("\u009b"
                  "31m"),
            "\\xc2\\x9b31m");                         // an 8-bit control character
  EXPECT_EQ(shown("a\u202eb"), "a\\xe2\\x80\\xaeb");  // bidirectional control
  EXPECT_EQ(shown("\xff"), "\\xff");
}

// Changes the texts of a plan, one at a time.
TEST(Inspection, NamesOfThePlanAreEscaped) {
  constexpr const char* kEvil = "\x1b[2J\n  cuDNN  1.2.3";
  const auto shows = [&](const std::function<void(plan::Plan&)>& change) {
    plan::Plan plan = plan::testing::derived_plan();
    change(plan);
    return inspect_text("x.attnplan", {{plan}}, plan);
  };
  const std::vector<std::function<void(plan::Plan&)>> changes = {
      [&](auto& p) { p.spec_name = kEvil; },
      [&](auto& p) {
        p.bindings = {{kEvil, kEvil}};
      },
      [&](auto& p) { p.target.name = kEvil; },
      [&](auto& p) { p.program.tensors[0].name = kEvil; },
      [&](auto& p) { p.program.params[0].name = kEvil; },
      [&](auto& p) { std::get<plan::DeriveStep>(p.program.steps[0]).expressions[0] = kEvil; },
      [&](auto& p) { p.program.check->faults[0].what = kEvil; },
      [&](auto& p) { p.nvrtc_version = kEvil; },
      [&](auto& p) { p.compiled[0].heuristic = kEvil; }};
  for (const auto& change : changes) {
    EXPECT_THAT(shows(change), HasSubstr("\\x1b[2J\\x0a  cuDNN  1.2.3"));
    EXPECT_THAT(shows(change), Not(HasSubstr("\x1b")));
  }
}

TEST(Inspection, NamesWhatMadeTheKernels) {
  plan::Plan plan = plan::testing::derived_plan();
  EXPECT_THAT(inspect_text("x.attnplan", {{plan}}, plan), HasSubstr("\n  NVRTC       13.0\n"));
  plan = plan::testing::sample_plan();  // without kernels
  EXPECT_THAT(inspect_text("x.attnplan", {{plan}}, plan), Not(HasSubstr("NVRTC")));
}

// Names the options that make such a plan, whatever the names are in the file.
TEST(Inspection, NamesOptionsThatDecided) {
  plan::Plan plan = plan::testing::derived_plan();
  const auto shown = [&] { return inspect_text("x.attnplan", {{plan}}, plan); };
  plan.without.clear();
  EXPECT_THAT(shown(), Not(HasSubstr("--")));
  for (const auto& [made, option] : {std::pair(&target::Rewrites::warp_groups, "mma"),
                                     {&target::Rewrites::short_forms, "long"},
                                     {&target::Rewrites::long_forms, "short"}}) {
    target::Rewrites rewrites;
    rewrites.*made = false;
    plan.without = target::without(rewrites);
    EXPECT_THAT(shown(), HasSubstr(fmt::format(", --skeleton {}\n", option)));
  }
  const std::string rewrite(target::rewrites().front().name);
  plan.without = {rewrite, "warp_groups", "long_forms"};
  EXPECT_THAT(shown(), HasSubstr(fmt::format(", --without {}, --skeleton mma,short\n", rewrite)));
}

}  // namespace
}  // namespace attn::tools
