#include "compiler/ast/json_text.h"

#include <gtest/gtest.h>

namespace attn::ast {
namespace {

std::optional<JsonValue> read(const std::string& text) {
  const support::Source source("x.json", text);
  diag::Sink sink(source);
  auto value = read_json(source, sink);
  EXPECT_NE(value.has_value(), sink.has_errors());
  return value;
}

TEST(JsonText, ValuesKnowTheirPlaces) {
  const auto json = read(" {\"a\": [1, -2.5e3], \"b\": \"x\\n\\u00e4\", \"a\": null} ");
  ASSERT_TRUE(json);
  EXPECT_EQ(json->span, (support::Span{1, 48}));
  ASSERT_EQ(json->members.size(), 3U);  // a repeated key is kept
  EXPECT_EQ(json->members[0].key_span, (support::Span{3, 4}));
  const JsonValue& list = json->members[0].value;
  EXPECT_EQ(list.items[1].text, "-2.5e3");
  EXPECT_EQ(list.items[1].span, (support::Span{11, 17}));
  EXPECT_EQ(json->find("b")->value.text, "x\n\xC3\xA4");
  EXPECT_EQ(json->find("b")->value.span, (support::Span{26, 35}));
  EXPECT_EQ(json->find("c"), nullptr);
}

TEST(JsonText, WhatIsNotJsonIsRefused) {
  for (const char* text :
       {"",    "{",        "[1,]",       "{\"a\" 1}", "{a: 1}",  "01",          "1.",  ".5",
        "+1",  "1e",       "-",          "\"a",       "\"\\x\"", "\"\\u12g4\"", "nul", "[1 2]",
        "1 2", "\"a\nb\"", "{\"a\":1,}", "tru",       "'a'",     "// c\n1"}) {
    EXPECT_FALSE(read(text)) << text;
  }
}

TEST(JsonText, NestingIsBounded) {
  EXPECT_FALSE(read(std::string(100'000, '[')));
  EXPECT_TRUE(read(std::string(500, '[') + std::string(500, ']')));
}

TEST(JsonText, NumbersAsJsonSpellsThem) {
  EXPECT_TRUE(is_json_number("0"));
  EXPECT_TRUE(is_json_number("10.50e-3"));
  for (const char* text : {"", "-1", "01", "1.", ".5", "0x1", "1_0"}) {
    EXPECT_FALSE(is_json_number(text)) << text;
  }
}

}  // namespace
}  // namespace attn::ast
