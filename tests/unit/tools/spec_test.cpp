#include "tools/spec.h"

#include <gtest/gtest.h>

#include "tests/unit/tools/spec_text.h"

namespace attn::tools {
namespace {

TEST(Spec, WhatHasNoSpecHasItsError) {
  auto source = std::make_shared<const support::Source>("x.attn", "attention x { dims Q = 1; }");
  const SpecOutcome outcome = analyze_spec(source, {}, Format::text);
  EXPECT_FALSE(outcome.spec.has_value());
  ASSERT_TRUE(outcome.error.has_value());
  EXPECT_EQ(outcome.error->code, ErrorCode::invalid_spec);
  EXPECT_EQ(outcome.exit_code, exit_code(outcome.error->code));
  const Json json = error_json(*outcome.error, nullptr);
  EXPECT_EQ(json["detail"]["diagnostics"].size(), json["detail"]["errors"]);

  const SpecOutcome missing = read_spec("no/such/file.attn", {}, Format::text);
  ASSERT_TRUE(missing.error.has_value());
  EXPECT_EQ(missing.error->code, ErrorCode::io);
}

// Otherwise opening a plan would read a local file and print its first line.
TEST(Spec, ThePlansTextImportsNothing) {
  plan::Plan plan;
  plan.spec_text = "import \"/etc/passwd\";\nattention a { dims B = 1, Hq = 1, Sq = 4, D = 8; }\n";
  const SpecOutcome outcome = spec_of_plan("x.attnplan", plan, Format::text);
  EXPECT_FALSE(outcome.spec.has_value());
  ASSERT_TRUE(outcome.error.has_value());
  EXPECT_EQ(outcome.error->code, ErrorCode::plan_damaged);
  EXPECT_EQ(
      outcome.error->message,
      "the spec in the plan file imports `/etc/passwd`, but plan files must not have imports");
  plan.spec_text = plan.spec_text.substr(plan.spec_text.find('\n'));
  EXPECT_TRUE(spec_of_plan("x.attnplan", plan, Format::text).spec.has_value());
}

}  // namespace
}  // namespace attn::tools
