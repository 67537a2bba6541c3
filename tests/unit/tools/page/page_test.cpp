#include "tools/page/page.h"

#include <gmock/gmock.h>

#include "tests/unit/tools/spec_text.h"
#include "tools/page/spec_view.h"

namespace attn::tools::page {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Page, EscapesText) {
  const std::string text = page_of({{"name", "<b>\"'&"}, {"data", nullptr}});
  EXPECT_THAT(text, HasSubstr("<h1>&lt;b&gt;&quot;&apos;&amp;</h1>"));
}

TEST(Page, NothingEndsTheElementOfData) {
  const std::string text =
      page_of({{"name", "x"}, {"data", {{"a", "</script><!--"}, {"b", "\xff"}}}});
  EXPECT_THAT(text, HasSubstr("{\"a\":\"\\u003c/script>\\u003c!--\",\"b\":\"\\ufffd\"}</script>"));
}

TEST(Page, TemplatesInTheViewAreText) {
  EXPECT_THAT(page_of({{"name", "{{file}}"}, {"file", "secret"}, {"data", nullptr}}),
              HasSubstr("<h1>{{file}}</h1>"));
}

TEST(Page, EmptyValuesHaveNoSection) {
  EXPECT_THAT(page_of({{"name", "x"}, {"target", ""}, {"data", nullptr}}),
              Not(HasSubstr(">for <")));
  EXPECT_THAT(page_of({{"name", "x"}, {"target", "h200"}, {"data", nullptr}}),
              HasSubstr(">for h200<"));
}

std::string text_of(const Json& line) {
  std::string text;
  for (const Json& word : line["words"]) text += word["text"];
  return text;
}

TEST(Page, LinesAreThoseOfTheText) {
  const support::Source source("x.attn", "# a\n\tattention x {  dims\tB = 2; }\n\n  end\n");
  const diag::Sink sink(source);
  const Json lines = lines_view(source, {&sink}, {{"dims", 2, 3, "dims B = 2;", {}}});
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(text_of(lines[0]), "# a");
  EXPECT_EQ(lines[0]["words"][0]["kind"], "comment");
  EXPECT_EQ(text_of(lines[1]), "    attention x {  dims    B = 2; }");
  EXPECT_EQ(lines[1]["words"][1], Json({{"kind", "keyword"}, {"text", "attention"}}));
  EXPECT_EQ(text_of(lines[2]), "");
  EXPECT_EQ(text_of(lines[3]), "  end");
  EXPECT_EQ(lines[0]["clauses"], "");
  EXPECT_EQ(lines[1]["clauses"], "0");
  EXPECT_EQ(lines[2]["clauses"], "0");
}

TEST(Page, CaretsAreUnderWhatIsMeant) {
  const support::Source source("x.attn", "\t\u00e4 = 12;\n");
  diag::Sink sink(source);
  auto& diagnostic = sink.report(diag::Code::syntax, {6, 8}, "wrong");
  diagnostic.labels.push_back({{1, 3}, "this"});
  diagnostic.help = "do not";
  const Json marks = lines_view(source, {&sink}, {})[0]["marks"];
  ASSERT_EQ(marks.size(), 3U);
  EXPECT_THAT(marks[0]["text"].get<std::string>(), ::testing::StartsWith("        ^^ error["));
  EXPECT_EQ(marks[1]["text"], "    - this");
  EXPECT_EQ(marks[2]["text"], "= help: do not");
}

}  // namespace
}  // namespace attn::tools::page
