// Every spec of the library checks without a word, as DSL and as JSON, bound and open.
#include <algorithm>
#include <filesystem>

#include "compiler/ast/print.h"
#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::sema {
namespace {

std::vector<std::filesystem::path> specs() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ATTN_SOURCE_DIR) / "specs")) {
    if (entry.path().extension() == ".attn") found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

class Specs : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(Specs, MeanTheSameInBothSurfaces) {
  const auto source = support::Source::read(GetParam().string());
  ASSERT_TRUE(source.ok());
  diag::Sink sink(*source);
  const auto spec = ast::parse(*source, sink);
  ASSERT_TRUE(spec) << diag::to_text(sink);
  EXPECT_EQ(spec->name.text, GetParam().stem().string());
  const auto attention = analyze(*spec, {}, sink);
  ASSERT_TRUE(attention) << diag::to_text(sink);
  EXPECT_EQ(diag::to_text(sink), "");
  EXPECT_TRUE(attention->dims.bound()) << "a default for every dimension";
  EXPECT_TRUE(ir::verify(*attention).ok());

  const support::Source json("x.attn.json", ast::to_json(*spec));
  diag::Sink json_sink(json);
  const auto json_spec = ast::parse(json, json_sink);
  ASSERT_TRUE(json_spec) << diag::to_text(json_sink);
  const auto json_attention = analyze(*json_spec, {}, json_sink);
  ASSERT_TRUE(json_attention) << diag::to_text(json_sink);
  EXPECT_EQ(ir::to_text(*json_attention), ir::to_text(*attention));
}

TEST_P(Specs, TakeOddShapes) {
  const auto source = support::Source::read(GetParam().string());
  ASSERT_TRUE(source.ok());
  const auto name = GetParam().stem();
  // There, whole blocks, and the columns of a format.
  const std::string depth = name == "mxfp8" ? "96" : name == "chosen_fp8" ? "576" : "40";
  const Analyzed analyzed = analyze_text(
      std::string(source->text()),
      {{"B", "1"}, {"Hq", "5"}, {"Hkv", "1"}, {"Sq", "129"}, {"Skv", "777"}, {"D", depth}});
  EXPECT_TRUE(analyzed.attention) << analyzed.text;
}

INSTANTIATE_TEST_SUITE_P(Library, Specs, ::testing::ValuesIn(specs()),
                         [](const auto& spec) { return spec.param.stem().string(); });

// The text between ```LANGUAGE and ``` in docs/language.md.
std::vector<std::string> examples(const std::string& language) {
  const auto page = support::Source::read(std::string(ATTN_SOURCE_DIR) + "/docs/language.md");
  EXPECT_TRUE(page.ok());
  const std::string text(page.ok() ? page->text() : "");
  const std::string fence = "```" + language + "\n";
  std::vector<std::string> found;
  for (std::size_t at = text.find(fence); at != text.npos; at = text.find(fence, at + 1)) {
    const std::size_t begin = at + fence.size();
    found.push_back(text.substr(begin, text.find("```", begin) - begin));
  }
  return found;
}

TEST(LanguagePage, ItsSpecsCheck) {
  EXPECT_GE(examples("attn").size(), 5U);
  for (const std::string& text : examples("attn")) {
    const Analyzed analyzed = analyze_text(text);
    EXPECT_EQ(analyzed.codes, Codes{}) << text << analyzed.text;
  }
}

TEST(LanguagePage, ItsJsonChecks) {
  EXPECT_EQ(examples("json").size(), 1U);
  for (const std::string& text : examples("json")) {
    const support::Source source("x.attn.json", text);
    diag::Sink sink(source);
    const auto spec = ast::parse(source, sink);
    EXPECT_TRUE(spec && analyze(*spec, {}, sink)) << diag::to_text(sink);
  }
}

}  // namespace
}  // namespace attn::sema
