// The examples of `attnc explain-code`: the wrong one gets its code, the right one nothing.
#include "compiler/diag/explanations.h"

#include <gtest/gtest.h>

#include <charconv>
#include <set>

#include "compiler/driver/driver.h"
#include "compiler/driver/memory.h"

namespace attn::diag {
namespace {

// Expands an example for the compiler: `[[101 x (]]` becomes 101 times `(`.
std::string expand_example(std::string_view example) {
  std::string out;
  for (;;) {
    const std::size_t open = example.find("[[");
    out += example.substr(0, open);
    if (open == example.npos) return out;
    const std::size_t times = example.find(" x ", open);
    const std::size_t close = example.find("]]", times);
    if (close == example.npos) return out + std::string(example.substr(open));
    std::size_t count = 0;
    std::from_chars(example.data() + open + 2, example.data() + times, count);
    const std::string_view part = example.substr(times + 3, close - times - 3);
    for (; count > 0; --count) out += part;
    example.remove_prefix(close + 2);
  }
}

class Explanations : public ::testing::TestWithParam<Code> {
 protected:
  static std::set<std::string> codes(std::string_view example) {
    const std::string text = expand_example(example);
    sema::Bindings bindings;
    constexpr std::string_view kBind = "# --bind ";
    if (text.starts_with(kBind)) {
      const std::size_t equals = text.find('=');
      bindings[text.substr(kBind.size(), equals - kBind.size())] =
          text.substr(equals + 1, text.find('\n') - equals - 1);
    }
    const support::Source source(text.starts_with('{') ? "x.attn.json" : "x.attn", text);
    Sink sink(source);
    if (const auto attention = driver::front_end(source, bindings, sink)) {
      driver::warn_of_memory(*attention, sink);
    }
    std::set<std::string> found;
    for (const Diagnostic& diagnostic : sink.sorted()) found.emplace(id_of(diagnostic.code));
    return found;
  }
};

TEST_P(Explanations, TheWrongExampleGetsTheCode) {
  EXPECT_EQ(codes(explanation_of(GetParam()).wrong),
            (std::set<std::string>{std::string(id_of(GetParam()))}));
}

TEST_P(Explanations, TheRightExampleGetsNone) {
  EXPECT_EQ(codes(explanation_of(GetParam()).right), std::set<std::string>{});
}

TEST_P(Explanations, SayWhatIsMeantInLinesOfAHundred) {
  const std::string_view text = explanation_of(GetParam()).text;
  ASSERT_FALSE(text.empty()) << "explanations.def has nothing of it";
  std::size_t column = 0;
  for (const char c : text) {
    column = c == '\n' ? 0 : column + 1;
    EXPECT_LE(column, 100U);
  }
  EXPECT_EQ(text.back(), '.');
}

std::string test_name(const ::testing::TestParamInfo<Code>& info) {
  return std::string(id_of(info.param));
}

INSTANTIATE_TEST_SUITE_P(Codes, Explanations,
                         ::testing::ValuesIn(all_codes().begin(), all_codes().end()), test_name);

TEST(Examples, RepeatWhatIsWrittenSo) {
  EXPECT_EQ(expand_example("a[[3 x bc ]]d[[0 x e]]"), "abc bc bc d");
  EXPECT_EQ(expand_example("t[x[0]]"), "t[x[0]]");
}

}  // namespace
}  // namespace attn::diag
