#include "tools/report.h"

#include <gtest/gtest.h>

namespace attn::tools {
namespace {

TEST(Report, PlacesAnErrorInItsSource) {
  const support::Source source("x.attn", "one\n  two \xC3\xA9 three\n");
  const Error error{
      ErrorCode::unsupported, "not this", {"but that"}, R"({"line": 2, "column": 9})"};
  EXPECT_EQ(error_text(error, &source),
            "error[unsupported]: not this\n"
            "  --> x.attn:2:9\n"
            "   |\n"
            " 2 |   two \xC3\xA9 three\n"
            "   |         ^\n"
            "  = note: but that\n");
}

TEST(Report, WithoutPlaceOrSourceThereIsNoExcerpt) {
  const support::Source source("x.attn", "one\n");
  const Error nowhere{ErrorCode::cuda, "no driver"};
  EXPECT_EQ(error_text(nowhere, &source), "error[cuda]: no driver\n");
  const Error somewhere{ErrorCode::unsupported, "not this", {}, R"({"line": 1, "column": 1})"};
  EXPECT_EQ(error_text(somewhere, nullptr), "error[unsupported]: not this\n");
}

TEST(Report, ALongLineIsShownAroundTheCaret) {
  const support::Source source("x.attn", std::string(500, 'a') + "b" + std::string(500, 'c'));
  const Error error{ErrorCode::unsupported, "x", {}, R"({"line": 1, "column": 501})"};
  const std::string text = error_text(error, &source);
  const std::size_t line = text.find("1 | ") + 4;
  const std::size_t caret = text.find('^') - (text.rfind('\n', text.find('^')) + 1);
  EXPECT_EQ(text[text.rfind('\n', line) + 1 + caret], 'b');
  EXPECT_LT(text.size(), 400U);
}

// `--verbose` shows the table (tests/cli/unified_test.py).
TEST(Report, EngineConfigsAreLeftOut) {
  const Error error{ErrorCode::unsupported,
                    "no plan",
                    {"engine 5: NOT_SUPPORTED: why", "engines 1, 12: S: r", "engines are few"},
                    R"({"configs": [{"mode": "A", "engine": 5, "knobs": {"24": 3}, "status":
                        "NOT_SUPPORTED", "reason": "why at: !desc.is_x"}, {"mode": "FALLBACK",
                        "engine": 12, "knobs": {}, "status": "S", "reason": "r"}]})"};
  EXPECT_EQ(error_text(error, nullptr),
            "error[unsupported]: no plan\n"
            "  = note: engines are few\n"
            "  = note: `--verbose` lists what cuDNN answers for each engine config\n");
}

TEST(Report, JsonHasTheSameContent) {
  const support::Source source("x.attn", "one\n");
  const Error error{ErrorCode::worker, "died", {"note"}, R"({"signal": "SIGFPE"})"};
  EXPECT_EQ(error_json(error, &source).dump(),
            R"({"code":"worker","message":"died","notes":["note"],"file":"x.attn",)"
            R"("detail":{"signal":"SIGFPE"}})");
}

}  // namespace
}  // namespace attn::tools
