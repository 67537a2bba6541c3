#include "compiler/driver/lowerings.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compiler/driver/driver.h"
#include "runtime/base/check.h"

namespace attn::driver {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(Lowerings, AreFoundByName) {
  const auto all = lowerings();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front().name, "composite");
  EXPECT_EQ(lowering_names().front(), kAnyLowering);
  EXPECT_THAT(lowering_names(), SizeIs(lowerings(kAnyOrSlow).size() + 1));
  for (const Lowering& lowering : all) {
    ASSERT_THAT(lowerings(lowering.name), SizeIs(1));
    EXPECT_EQ(&lowerings(lowering.name).front(), &lowering);
  }
  EXPECT_TRUE(lowerings("compound").empty());
}

TEST(Lowerings, SlowOnesAreTakenOnlyWhenAllowed) {
  for (const Lowering& lowering : lowerings()) EXPECT_FALSE(lowering.slow) << lowering.name;
  EXPECT_EQ(lowerings(kAnyOrSlow).back().name, "unfused");
  EXPECT_TRUE(lowerings("unfused").front().slow);
}

TEST(Lowerings, AreInTheManual) {
  std::ifstream file(ATTN_SOURCE_DIR "/docs/cli.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const Lowering& lowering : lowerings(kAnyOrSlow)) {
    EXPECT_THAT(text.str(),
                HasSubstr(fmt::format("\n| `{}` | {} |\n", lowering.name, lowering.what)));
  }
}

TEST(Rewrites, AreInTheManual) {
  std::ifstream file(ATTN_SOURCE_DIR "/docs/cli.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const passes::Rewrite& rewrite : passes::rewrites()) {
    EXPECT_THAT(text.str(),
                HasSubstr(fmt::format("\n| `{}` | {} |\n", rewrite.name, rewrite.what)));
  }
}

TEST(ErrorOf, ASingleRefusalIsItsError) {
  const Error refused{ErrorCode::unsupported, "no", {"try yes"}, R"({"line": 3})"};
  const Error error = error_of({{"composite", refused}});
  EXPECT_EQ(error.to_text(), refused.to_text());
  EXPECT_EQ(error.payload, refused.payload);
}

TEST(ErrorOf, SeveralKeepTheFirstAndAddTheOthers) {
  const Error error = error_of(
      {{"composite", {ErrorCode::unsupported, "no", {"try yes"}, R"({"line": 3, "column": 7})"}},
       {"unified", {ErrorCode::unsupported, "nor this", {"engine 4: too large"}, ""}}});
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_EQ(error.message, "no");
  EXPECT_THAT(error.notes,
              ElementsAre("try yes", "lowering `unified`: nor this", "  engine 4: too large"));
  const auto payload = nlohmann::json::parse(error.payload);
  EXPECT_EQ(payload["line"], 3);
  ASSERT_THAT(payload["lowerings"], SizeIs(2));
  EXPECT_EQ(payload["lowerings"][0]["lowering"], "composite");
  EXPECT_EQ(payload["lowerings"][0]["detail"]["column"], 7);
  EXPECT_EQ(payload["lowerings"][1]["message"], "nor this");
}

std::vector<Candidate> all_ways() {
  std::vector<Candidate> all;
  for (const Lowering& way : lowerings()) all.push_back({&way, {}});
  return all;
}

TEST(FirstTaken, GoesOnAfterARefusalOrAFailureOfOneWay) {
  std::vector<Refusal> refused;
  const auto refuse = [](ErrorCode code) {
    return [code](const Candidate& candidate) {
      return Result<int>(code, std::string(candidate.way->name));
    };
  };
  EXPECT_EQ(first_taken(all_ways(), refused, refuse(ErrorCode::unsupported)).error().message,
            "composite");
  EXPECT_THAT(refused, SizeIs(lowerings().size()));
  for (const ErrorCode code : {ErrorCode::worker, ErrorCode::cudnn}) {
    refused.clear();
    EXPECT_EQ(first_taken(all_ways(), refused, refuse(code)).error().code, code);
    EXPECT_THAT(refused, SizeIs(lowerings().size()));
  }
  refused.clear();
  EXPECT_EQ(first_taken(all_ways(), refused, refuse(ErrorCode::io)).error().code, ErrorCode::io);
  EXPECT_THAT(refused, SizeIs(1));
  refused.clear();
  const auto last = [](const Candidate& candidate) {
    if (candidate.way != &lowerings().back()) return Result<int>(ErrorCode::unsupported, "no");
    return Result<int>(7);
  };
  EXPECT_EQ(first_taken(all_ways(), refused, last).value(), 7);
  EXPECT_THAT(refused, SizeIs(lowerings().size() - 1));
}

// What each lowering says of a spec of these dims; "" where it serves it.
std::map<std::string, std::string> said(const std::string& clauses, bool backward) {
  const support::Source source("f.attn", "attention f { " + clauses + " }");
  diag::Sink sink(source);
  const std::optional<ir::Attention> attention = front_end(source, {}, sink);
  ATTN_CHECK(attention.has_value(), diag::to_text(sink));
  std::map<std::string, std::string> said;
  for (const Lowering& way : lowerings(kAnyOrSlow)) {
    const auto lowered = (backward ? way.backward : way.forward)(*attention, {});
    said[std::string(way.name)] = lowered.ok() ? "" : lowered.error().message;
  }
  return said;
}

TEST(Lowerings, ASinkThatDependsOnTheBatchIsServedByNone) {
  const std::string clauses =
      "Hq = 4, Hkv = 2, Sq = 128, Skv = 128, D = 64; tensor s: f32[B, Hq]; sink s[b, h]; "
      "mask q_idx >= kv_idx;";
  for (const bool backward : {false, true}) {
    for (const auto& [way, message] : said("dims B = 2, " + clauses, backward)) {
      EXPECT_NE(message, "") << way;
      if (way == "composite" || way == "unfused") {
        EXPECT_THAT(message, HasSubstr("on the batch"));
      }
    }
    EXPECT_EQ(said("dims B = 1, " + clauses, backward)["composite"], "");
  }
}

TEST(Lowerings, PartsBeginAtMultiplesOf16Bytes) {
  const std::string dims = "dims B = 1, Hq = 1, Sq = 512, Skv = 512, D = 64; ";
  const std::string window = "mask (q_idx >= kv_idx && q_idx - kv_idx < 64) || ";
  const std::string strided = "strides(512 * 68, 68, 68, 1)";
  const std::string keys = "layout q: bshd, k: " + strided + ", v: " + strided + ", o: bshd; ";
  const std::string rows = "layout q: " + strided + ", k: bshd, v: bshd, o: bshd; ";
  EXPECT_THAT(said(dims + keys + window + "kv_idx == 7;", false)["parts"],
              HasSubstr("no multiple of 16 bytes"));
  EXPECT_THAT(said(dims + rows + window + "q_idx == 7;", false)["parts"],
              HasSubstr("no multiple of 16 bytes"));
  EXPECT_EQ(said(dims + window + "kv_idx == 7;", false)["parts"], "");
  EXPECT_EQ(said(dims + keys + window + "kv_idx == 7;", false)["composite"], "");
}

}  // namespace
}  // namespace attn::driver
