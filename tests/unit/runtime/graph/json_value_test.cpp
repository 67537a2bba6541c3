#include "runtime/graph/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace attn::json {
namespace {

using ::testing::HasSubstr;

std::string refusal(std::string_view text, const Limits& limits = {}) {
  const auto parsed = parse(text, limits);
  if (parsed.ok()) return "accepted";
  EXPECT_EQ(parsed.error().code, ErrorCode::invalid_argument);
  return parsed.error().message;
}

TEST(JsonParse, RefusesWhatIsNotStrictJson) {
  EXPECT_EQ(refusal(R"({"a": [1, -2, 3.5, "x", true, null, {}]})"), "accepted");
  EXPECT_THAT(refusal("{} x"), HasSubstr("byte"));
  EXPECT_THAT(refusal("{\"a\":1,\"a\":1}"), HasSubstr("a key occurs twice"));
  EXPECT_THAT(refusal("\"\xFF\""), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal("NaN"), HasSubstr("byte"));
  EXPECT_THAT(refusal("1e999"), HasSubstr("overflow"));
  EXPECT_THAT(refusal("[1,]"), HasSubstr("byte"));
}

TEST(JsonParse, BoundsSizeDepthMembersAndValues) {
  EXPECT_THAT(refusal("      1", {.bytes = 6}), HasSubstr("longer than the allowed 6"));
  EXPECT_EQ(refusal("[[[]]]", {.depth = 3}), "accepted");
  EXPECT_THAT(refusal("[[[[]]]]", {.depth = 3}), HasSubstr("too deeply"));
  EXPECT_THAT(refusal(R"({"a":1,"b":1,"c":1})", {.members = 2}), HasSubstr("too many members"));
  EXPECT_THAT(refusal("[1,2,3]", {.values = 3}), HasSubstr("too many values"));
  EXPECT_EQ(refusal("[1,2,3]", {.values = 4}), "accepted");
}

TEST(JsonParse, AMillionBracketsAreRefusedAtOnce) {
  EXPECT_THAT(refusal(std::string(1000000, '[')), HasSubstr("too deeply"));
}

double number_back(double value) {
  const auto document = parse(of_number(value).dump());
  Failure failure;
  const double back = Value(*document, failure).number();
  EXPECT_TRUE(failure.ok());
  return back;
}

TEST(JsonNumbers, AreExactBothWays) {
  std::uint64_t bits = 1;
  for (int round = 0; round < 20000; ++round) {
    bits = bits * 6364136223846793005U + 1442695040888963407U;
    const auto value = std::bit_cast<double>(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(number_back(value)), bits);
  }
  for (const double value : {0.0, -0.0, 1.0, 5e-324, 1.7976931348623157e308, -HUGE_VAL, HUGE_VAL}) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(number_back(value)),
              std::bit_cast<std::uint64_t>(value));
  }
  EXPECT_TRUE(std::isnan(number_back(std::nan(""))));
}

TEST(JsonTexts, HoldAnyBytes) {
  for (const std::string text : {"", "plain", "\xC3\xA9", "\xFF", "\xC0\x80", "\xED\xA0\x80"}) {
    const auto document = parse(of_text(text).dump());
    ASSERT_TRUE(document.ok());
    Failure failure;
    EXPECT_EQ(Value(*document, failure).text(), text);
    EXPECT_TRUE(failure.ok());
  }
}

TEST(JsonValue, KeepsTheFirstFailureAndGivesDefaultsAfterIt) {
  const auto document = parse(R"({"a": {"b": [1, "x", 2]}, "c": 5})");
  Failure failure;
  const Value value(*document, failure);
  EXPECT_EQ(value["a"]["b"].integers().size(), 2U);  // stops at the error
  EXPECT_EQ(value["c"].integer(0, 4), 0);
  EXPECT_EQ(value["d"].text(), "");
  const Status status = failure.status();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "$.a.b[1]: expected an integer");
  EXPECT_EQ(status.error().payload, R"({"path":"$.a.b[1]"})");
}

TEST(JsonValue, ChecksRangesAndMembers) {
  const auto document = parse(R"({"a": 5, "b": 9007199254740993})");
  const auto message = [&document](const auto& read) {
    Failure failure;
    read(Value(*document, failure));
    return failure.ok() ? std::string("ok") : failure.status().error().message;
  };
  EXPECT_EQ(message([](const Value& v) { (void)v["a"].integer(5, 5); }), "ok");
  EXPECT_EQ(message([](const Value& v) { (void)v["a"].integer(6); }), "$.a: is out of range");
  EXPECT_EQ(message([](const Value& v) { (void)v["b"].number(); }), "$.b: is out of range");
  EXPECT_EQ(message([](const Value& v) { v.only({"a", "b"}); }), "ok");
  EXPECT_EQ(message([](const Value& v) { v.only({"a"}); }), "$: \"b\" is not a known member");
  EXPECT_EQ(message([](const Value& v) { (void)v["a"]["b"]; }), "$.a: expected an object");
}

}  // namespace
}  // namespace attn::json
