#include "compiler/diag/diagnostics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

namespace attn::diag {
namespace {

using support::Source;

TEST(DiagnosticCodes, AreUniqueAndSortedByKind) {
  std::set<std::string_view> ids;
  for (const Code code : all_codes()) {
    EXPECT_TRUE(ids.insert(id_of(code)).second) << id_of(code);
    EXPECT_EQ(id_of(code)[0], severity_of(code) == Severity::error ? 'E' : 'W');
    EXPECT_FALSE(summary_of(code).empty());
  }
}

TEST(DiagnosticText, HasRustcsShape) {
  const Source source("specs/x.attn", "attention x {\n\n\n  mask  q_idx - kv_idx < windw;\n}\n");
  Sink sink(source);
  sink.report(Code::unknown_name, {41, 46}, "unknown name `windw`").help = "did you mean `window`?";
  EXPECT_EQ(to_text(sink),
            "error[E0201]: unknown name `windw`\n"
            "  --> specs/x.attn:4:26\n"
            "   |\n"
            " 4 |   mask  q_idx - kv_idx < windw;\n"
            "   |                          ^^^^^\n"
            "   = help: did you mean `window`?\n");
}

TEST(DiagnosticJson, FixesHaveTheirEdits) {
  const Source source("x.attn", "one\ntwo\n");
  Sink alone(source);
  auto& found = alone.report(Code::unknown_name, {4, 7}, "unknown");
  found.add_replacement({4, 7}, "too");
  found.add_replacement({4, 7}, "");  // none
  Sink sink(source);
  sink.adopt(alone, 0);
  const auto json = nlohmann::json::parse(to_json(sink));
  const auto& fixes = json["diagnostics"][0]["fixes"];
  ASSERT_EQ(fixes.size(), 1U);
  EXPECT_EQ(fixes[0]["title"], "write `too`");
  const nlohmann::json edit = {{"text", "too"}, {"file", "x.attn"}, {"line", 2},
                               {"column", 1},   {"end_line", 2},    {"end_column", 4}};
  EXPECT_EQ(fixes[0]["edits"], nlohmann::json::array({edit}));
  EXPECT_EQ(to_text(sink).find("too"), std::string::npos);  // the help says it
}

TEST(Sink, MovesTheEditsOfAnAddedSource) {
  const Source source("x.attn", "one\n");
  Sink sink(source);
  const auto [added, offset] = sink.add(Source("y.attn", "two\n"));
  Sink alone(added);
  alone.report(Code::unknown_name, {0, 3}, "unknown").add_replacement({0, 3}, "too");
  sink.adopt(alone, offset);
  const auto location = sink.locate(sink.sorted()[0].fixes[0].edits[0].span);
  EXPECT_EQ(location.source->name(), "y.attn");
  EXPECT_EQ(location.span, (support::Span{0, 3}));
}

TEST(DiagnosticText, ColoursAreAroundTheSameText) {
  const Source source("x.attn", "one two\n");
  Sink sink(source);
  auto& diagnostic = sink.report(Code::unknown_name, {4, 7}, "no `two`");
  diagnostic.labels.push_back({{0, 3}, "here"});
  diagnostic.help = "write `one`";
  const std::string text = to_text(sink, support::Paint(true));
  EXPECT_NE(text.find("\x1b[1m\x1b[31merror[E0201]\x1b[0m"), text.npos) << text;
  EXPECT_NE(text.find("\x1b[1m\x1b[31m^^^\x1b[0m"), text.npos) << text;
  EXPECT_EQ(std::regex_replace(text, std::regex("\x1b\\[[0-9;]*m"), ""), to_text(sink));
}

TEST(DiagnosticText, LabelsStandAtTheirOwnLines) {
  const Source source("x.attn", "one\ntwo\nthree\nfour\n");
  Sink sink(source);
  auto& diagnostic = sink.report(Code::duplicate_name, {14, 18}, "again");
  diagnostic.labels.push_back({{0, 3}, "first here"});
  EXPECT_EQ(to_text(sink),
            "error[E0202]: again\n"
            "  --> x.attn:4:1\n"
            "   |\n"
            " 1 | one\n"
            "   | --- first here\n"
            "...\n"
            " 4 | four\n"
            "   | ^^^^\n");
}

TEST(DiagnosticText, TabsWideCharactersAndControlsKeepTheCaretInPlace) {
  const Source source("x.attn", "\t\xC3\xA4\x1B\xFFz\n");
  Sink sink(source);
  sink.report(Code::syntax, {5, 6}, "here");
  EXPECT_NE(to_text(sink).find(" 1 |     \xC3\xA4\xEF\xBF\xBD\xEF\xBF\xBDz\n   |        ^\n"),
            std::string::npos)
      << to_text(sink);
}

TEST(DiagnosticText, ALongLineIsShownAroundTheCaret) {
  const std::string text = std::string(100'000, 'a') + "!" + std::string(100'000, 'b');
  const Source source("x.attn", text);
  Sink sink(source);
  sink.report(Code::syntax, {100'000, 100'001}, "here");
  const std::string shown = to_text(sink);
  EXPECT_LT(shown.size(), 500U);
  EXPECT_NE(shown.find("a!b"), std::string::npos);
}

TEST(DiagnosticText, TheEndOfAnEmptyFileIsAPlace) {
  const Source source("x.attn", "");
  Sink sink(source);
  sink.report(Code::syntax, {0, 0}, "expected `attention`");
  EXPECT_EQ(to_text(sink),
            "error[E0102]: expected `attention`\n  --> x.attn:1:1\n   |\n 1 |\n   | ^\n");
}

TEST(DiagnosticSink, SortsByPlaceAndDropsRepeats) {
  const Source source("x.attn", "abc");
  Sink sink(source);
  sink.report(Code::unknown_name, {2, 3}, "second");
  sink.report(Code::unused_name, {0, 1}, "first");
  sink.report(Code::unknown_name, {2, 3}, "second");
  const auto sorted = sink.sorted();
  ASSERT_EQ(sorted.size(), 2U);
  EXPECT_EQ(sorted[0].message, "first");
  EXPECT_EQ(sink.error_count(), 1U);
}

TEST(DiagnosticSink, WarningsAreNoErrors) {
  const Source source("x.attn", "abc");
  Sink sink(source);
  sink.report(Code::unused_name, {0, 1}, "unused");
  EXPECT_FALSE(sink.has_errors());
  EXPECT_EQ(sink.error_count(), 0U);
}

TEST(DiagnosticSink, KeepsABoundedNumber) {
  const Source source("x.attn", "abc");
  Sink sink(source);
  for (int i = 0; i < 5000; ++i) sink.report(Code::syntax, {0, 1}, std::to_string(i)).help = "x";
  EXPECT_EQ(sink.sorted().size(), Sink::kMost);
  EXPECT_TRUE(sink.has_errors());
}

TEST(DiagnosticJson, HasPlacesAndLabels) {
  const Source source("x.attn", "one\ntwo\n");
  Sink sink(source);
  auto& diagnostic = sink.report(Code::duplicate_name, {4, 7}, "again");
  diagnostic.labels.push_back({{0, 3}, "first here"});
  diagnostic.help = "rename";
  const auto json = nlohmann::json::parse(to_json(sink));
  EXPECT_EQ(json["errors"], 1);
  const auto& entry = json["diagnostics"][0];
  EXPECT_EQ(entry["code"], "E0202");
  EXPECT_EQ(entry["severity"], "error");
  EXPECT_EQ(entry["message"], "again");
  EXPECT_EQ(entry["file"], "x.attn");
  EXPECT_EQ(entry["line"], 2);
  EXPECT_EQ(entry["column"], 1);
  EXPECT_EQ(entry["end_line"], 2);
  EXPECT_EQ(entry["end_column"], 4);
  EXPECT_EQ(entry["labels"][0]["message"], "first here");
  EXPECT_EQ(entry["labels"][0]["line"], 1);
  EXPECT_EQ(entry["help"], "rename");
}

TEST(DiagnosticJson, AnyFileNameIsWritten) {
  const Source source("\xFF.attn", "x");
  Sink sink(source);
  sink.report(Code::syntax, {0, 1}, "m");
  EXPECT_EQ(nlohmann::json::parse(to_json(sink))["errors"], 1);
}

std::vector<std::string> messages(const Sink& sink) {
  std::vector<std::string> messages;
  for (const Diagnostic& found : sink.sorted()) messages.push_back(found.message);
  return messages;
}

TEST(Sizes, ThatAreWarnedOfAlikeAreSaidOnce) {
  const support::Source source("x.attn", "mask q_idx;");
  Sink sink(source);
  for (const char* sizes : {"Sq=1", "Sq=2", "Sq=3"}) {
    sink.begin_sizes(sizes);
    const std::string value = sizes;
    sink.report(Code::integer_overflow, {5, 6}, "of all");
    if (value != "Sq=1") sink.report(Code::integer_overflow, {6, 7}, "of two");
    if (value == "Sq=2") sink.report(Code::integer_overflow, {7, 8}, "of one");
    sink.report(Code::integer_overflow, {8, 9}, "reaches " + value);
    sink.report(Code::integer_overflow, {9, 10}, "the first at its place");
    sink.report(Code::integer_overflow, {9, 10}, "the second");
  }
  EXPECT_EQ(messages(sink),
            (std::vector<std::string>{"of all", "of two (with Sq=2, and with 1 other size)",
                                      "of one (with Sq=2)",
                                      "reaches Sq=1 (with Sq=1; similar with 2 other sizes)",
                                      "the first at its place", "the second"}));
}

}  // namespace
}  // namespace attn::diag
