#include "compiler/engines/cudnn/lower_parts.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "compiler/driver/driver.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::lower_parts_tests {
namespace {

using engines::Part;
using engines::View;
using ir::Dim;
using masks::testing::of_spec;
using plan::Direction;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ir::Attention small(const std::string& clauses) {
  return of_spec("attention a { dims B = 2, Hq = 4, Hkv = 4, Sq = 64, Skv = 64, D = 8; " + clauses +
                 " }");
}
// At a size where parts are faster.
ir::Attention large(const std::string& clauses) {
  return of_spec("attention a { dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = 4096, D = 128; " +
                 clauses + " grad q, k, v; }");
}

std::vector<Part> parts_of(const ir::Attention& attention, const std::vector<View>& views) {
  std::vector<Part> parts;
  for (const View& view : views) parts.push_back({view, *seen_through(view, attention)});
  return parts;
}

// All columns of the first rows, all columns of the other rows, and each half of the columns.
const std::vector<View> kRows = {{{.count = 48}, {.count = 64}},
                                 {{.begin = 48, .count = 16}, {.count = 64}}};
const std::vector<View> kColumns = {{{.count = 64}, {.count = 32}},
                                    {{.count = 64}, {.begin = 32, .count = 32}}};

std::string refusal(const std::string& clauses, bool backward = false) {
  const Status checked = check_parts(small(clauses), backward);
  return checked.ok() ? "" : checked.error().message;
}

TEST(CheckParts, RefusesWhatPartsCannotMake) {
  EXPECT_EQ(refusal("outputs o, lse;"), "");
  EXPECT_THAT(refusal("outputs o, max;"), HasSubstr("no other statistic"));
  EXPECT_THAT(refusal("dropout 0.5;"), HasSubstr("random numbers"));
  EXPECT_THAT(refusal("learn t: f32[Hq]; score score * t[h]; grad q, t;", true),
              HasSubstr("learned tensors"));
  EXPECT_EQ(refusal("learn t: f32[Hq]; score score * t[h];"), "");
  EXPECT_THAT(refusal("lengths kv;"), HasSubstr("lengths"));
}

TEST(Prepared, StatisticsAreMadeWhereRowsAreShared) {
  const ir::Attention attention = small("");
  for (const Launch& launch : *prepared(attention, parts_of(attention, kRows), false)) {
    EXPECT_FALSE(launch.attention.wants_lse);
  }
  for (const Launch& launch : *prepared(attention, parts_of(attention, kColumns), false)) {
    EXPECT_TRUE(launch.attention.wants_lse);
  }
}

TEST(Prepared, TheSinkIsCountedOnce) {
  const ir::Attention attention = small("tensor t: f32[Hq]; sink t[h];");
  const auto sinks = [&](const std::vector<View>& views) {
    std::vector<bool> has;
    for (const Launch& launch : *prepared(attention, parts_of(attention, views), false)) {
      has.push_back(launch.attention.sink.has_value());
    }
    return has;
  };
  EXPECT_THAT(sinks(kRows), ElementsAre(true, true));
  EXPECT_THAT(sinks(kColumns), ElementsAre(true, false));
  const auto made = prepared(attention, parts_of(attention, {kRows[0]}), false);
  EXPECT_THAT(made.error().message, HasSubstr("nothing but the sink"));
}

// "cudnn" or "kernel of NAME, .." for each step, without kernels that derive tensors from
// expressions.
std::vector<std::string> steps(const std::string& clauses, Direction direction) {
  const auto program = driver::lower(large(clauses), "parts", direction);
  if (!program.ok()) return {program.error().message};
  EXPECT_TRUE(plan::validate(*program).ok());
  std::vector<std::string> names;
  for (const plan::Step& step : program->steps) {
    const auto* derive = std::get_if<plan::DeriveStep>(&step);
    names.push_back(derive == nullptr ? "cudnn" : "kernel of " + derive->outputs.at(0));
  }
  return names;
}

TEST(JoinedForward, OfClassesIsOneKernelInPlace) {
  const std::string chunks = "mask q_idx // 256 == kv_idx // 256 && q_idx >= kv_idx;";
  EXPECT_THAT(steps(chunks, Direction::forward), ElementsAre("cudnn"));
  EXPECT_THAT(steps(chunks + " outputs o, lse;", Direction::forward),
              ElementsAre("cudnn", "kernel of lse"));  // its rows have another layout
}

TEST(JoinedForward, OfRowsWritesInPlace) {
  EXPECT_THAT(steps("mask kv_idx < 128 || q_idx >= kv_idx;", Direction::forward),
              ElementsAre("cudnn", "cudnn"));
}

TEST(JoinedForward, OfPartsThatShareRowsIsMerged) {
  EXPECT_THAT(
      steps("mask abs(q_idx - kv_idx) <= 256 || q_idx < 64 || kv_idx < 64;", Direction::forward),
      ElementsAre("cudnn", "cudnn", "cudnn", "kernel of parts.lse", "kernel of o"));
}

TEST(JoinedBackward, GradientsOfPartsAreAdded) {
  EXPECT_THAT(steps("mask abs(q_idx - kv_idx) <= 256;", Direction::backward),
              ElementsAre("kernel of part0.lse", "cudnn", "cudnn", "kernel of dq"));
}

TEST(Joined, WhatIsCheckedInAllScoresIsRefused) {
  EXPECT_THAT(steps("tensor t: i32[Skv]; tensor u: f32[64]; score score + u[t[kv_idx]]; "
                    "mask kv_idx < 128 || q_idx >= kv_idx;",
                    Direction::forward),
              ElementsAre(HasSubstr("checked")));
}

}  // namespace
}  // namespace attn::engines::lower_parts_tests
