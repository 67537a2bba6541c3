// Comments are part of the tree: where they go, and that they survive every way through it.
#include "compiler/ast/comments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "compiler/ast/print.h"
#include "tests/unit/compiler/ast/parsing.h"

namespace attn::ast {
namespace {

std::string formatted(const std::string& text, const std::string& name = "x.attn") {
  const Parsed parsed = parse_text(text, name);
  return parsed.spec ? to_dsl(*parsed.spec) : parsed.text;
}

TEST(Comments, AreAttachedToWhatTheyStandBy) {
  const Parsed parsed = parse_text(R"(# License.

# What it is.
attention f(w = 3  # the window
    , c = 2) {  # behind the brace
  # above dims

  dims B = 2;  # beside dims
  mask q_idx  # inside
       >= kv_idx;   score score;  # beside score

  # at the end
}  # behind
# below
)");
  ASSERT_TRUE(parsed.spec) << parsed.text;
  const Spec& spec = *parsed.spec;
  EXPECT_EQ(spec.comments.above, (CommentLines{"# License.", "", "# What it is.", "# the window"}));
  EXPECT_EQ(spec.comments.beside, "# behind the brace");
  ASSERT_EQ(spec.clauses.size(), 3U);
  EXPECT_EQ(spec.clauses[0].comments.above, (CommentLines{"# above dims", ""}));
  EXPECT_EQ(spec.clauses[0].comments.beside, "# beside dims");
  EXPECT_EQ(spec.clauses[1].comments.above, (CommentLines{"# inside"}));
  EXPECT_EQ(spec.clauses[1].comments.beside, "");
  EXPECT_EQ(spec.clauses[2].comments.beside, "# beside score");
  EXPECT_EQ(spec.end, (CommentLines{"", "# at the end"}));
  EXPECT_EQ(spec.below, (CommentLines{"# behind", "# below"}));
}

TEST(Comments, ArePrintedWithTheirNodes) {
  EXPECT_EQ(formatted("\n\n#a  \nattention f{#b\n\n\n#c\n\n\n\n#d\r\nmask true;#e\n\n\nscore 1;\n\n"
                      "#f\n\n}\n\n\n#g\n\n"),
            "#a\n"
            "attention f {  #b\n"
            "  #c\n"
            "\n"
            "  #d\n"
            "  mask    true;  #e\n"
            "\n"
            "  score   1;\n"
            "\n"
            "  #f\n"
            "}\n"
            "\n"
            "#g\n");
}

TEST(Comments, WithoutACommentBlankLinesAreKeptToo) {
  EXPECT_EQ(formatted("attention f {\n\n  mask true;\n\n\n  score 1;\n\n}\n\n"),
            "attention f {\n  mask    true;\n\n  score   1;\n}\n");
}

TEST(Comments, MayHoldAnyText) {
  const std::string text = "# \xE2\x89\xA5 \"quoted\" \\ # ; }\nattention f {  # {\n}\n";
  EXPECT_EQ(formatted(text), text);
  const Parsed parsed = parse_text(text);
  ASSERT_TRUE(parsed.spec);
  EXPECT_EQ(formatted(to_json(*parsed.spec), "x.json"), text);
}

TEST(Comments, ThatAreNotUtf8AreFound) {
  EXPECT_EQ(first_not_utf8(""), std::nullopt);
  EXPECT_EQ(first_not_utf8("# \xE2\x89\xA5"), std::nullopt);
  EXPECT_EQ(first_not_utf8("# \xE2\x89\xA5 \xE9t\xE9"), (Span{6, 7}));
  EXPECT_EQ(first_not_utf8("# \xE2\x89"), (Span{2, 3}));
}

TEST(Comments, InJson) {
  EXPECT_EQ(formatted(R"({"above": ["", "# a", "", "", "#b "], "beside": "# c", "attention": "f",
      "end": ["# e", ""], "below": ["# f"],
      "clauses": [{"above": ["# d"], "mask": true, "beside": "# g"}]})",
                      "x.json"),
            "# a\n\n#b\nattention f {  # c\n  # d\n  mask    true;  # g\n  # e\n}\n# f\n");
}

TEST(Comments, ThatAreNoneAreRefused) {
  for (const char* member :
       {R"("above": "# a")", R"("above": ["a"])", R"("above": ["# a\nb"])", R"("above": [null])",
        R"("beside": "")", R"("beside": ["# a"])", R"("end": ["x"])", R"("below": ["\n"])"}) {
    const Parsed parsed =
        parse_text(std::string(R"({"attention": "f", "clauses": [], )") + member + "}", "x.json");
    EXPECT_FALSE(parsed.spec) << member;
  }
  EXPECT_FALSE(parse_text(R"({"attention": "f", "clauses": [{"above": ["# a"]}]})", "x.json").spec);
}

TEST(Comments, TheSchemaOfAJsonFileStays) {
  const std::string json =
      "{\n  \"$schema\": \"s.json\",\n  \"attention\": \"f\",\n  \"clauses\": [\n\n  ]\n}\n";
  const Parsed parsed = parse_text(json, "x.json");
  ASSERT_TRUE(parsed.spec) << parsed.text;
  EXPECT_EQ(to_json(*parsed.spec), json);
}

// Comments and line ends anywhere between words.
TEST(Comments, AtEveryPlaceSurvive) {
  static constexpr const char* kWords[] = {"attention", "f",  "(",      "w",  "=",    "1",
                                           ",",         "c",  ")",      "{",  "dims", "B",
                                           "=",         "2",  ",",      "Sq", ";",    "mask",
                                           "q_idx",     ">=", "kv_idx", "&&", "true", ";",
                                           "score",     "2",  ";",      "}"};
  std::mt19937 random(4);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    int comments = 0;
    const auto gap = [&] {
      switch (random() % 8) {
        case 0: text += " # " + std::to_string(comments++) + "\n"; break;
        case 1: text += "\n\n#" + std::to_string(comments++) + " \r\n\n\n"; break;
        case 2: text += "\n\n\n"; break;
        default: text += " "; break;
      }
    };
    for (const char* word : kWords) {
      gap();
      text += word;
    }
    gap();
    const std::string once = formatted(text);
    EXPECT_EQ(formatted(once), once) << text;
    EXPECT_EQ(std::ranges::count(once, '#'), comments) << text << once;
    const Parsed parsed = parse_text(text);
    ASSERT_TRUE(parsed.spec) << parsed.text;
    EXPECT_EQ(formatted(to_json(*parsed.spec), "x.json"), once);
  }
}

}  // namespace
}  // namespace attn::ast
