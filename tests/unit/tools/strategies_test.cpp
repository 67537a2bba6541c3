#include "tools/strategies.h"

#include <gtest/gtest.h>

namespace attn::tools {
namespace {

driver::Compiled example() {
  driver::Compiled compiled;
  compiled.plan.strategy = "native";
  compiled.plan.choice = {{"native", 0.5}, {"composite", 0.8}, {"parts", 0.6}, {"unified", 0.5}};
  compiled.lowered = {{"composite", 4096, true}, {"unified", 0, true}};
  const std::string said =
      "a reason that has so many words that they do not fit in the table, nor "
      "in one line of the notes below it";
  compiled.refused = {{"parts", {ErrorCode::worker, "the worker died"}}};
  compiled.inexpressible = {{"tables", {ErrorCode::unsupported, said}},
                            {"seqlens", {ErrorCode::unsupported, said}},
                            {"segments", {ErrorCode::unsupported, "no segments"}}};
  return compiled;
}

TEST(Strategies, AreATableWithNotes) {
  EXPECT_EQ(
      strategies_text(considered(example())),
      "  engine  strategy   predicted  workspace  verdict\n"
      "  native  native      0.500 ms        0 B  chosen\n"
      "  cudnn   unified     0.500 ms          -  no faster\n"
      "  cudnn   composite   0.800 ms  >= 4.1 kB  slower\n"
      "  cudnn   parts       0.600 ms          -  failed: the worker died\n"
      "  cudnn   tables             -          -  refused (1)\n"
      "  cudnn   seqlens            -          -  refused (1)\n"
      "  cudnn   segments           -          -  refused: no segments\n"
      "  (1) a reason that has so many words that they do not fit in the table, nor in one line "
      "of the\n"
      "      notes below it\n");
}

TEST(Strategies, OfAPlanFileAreThoseItHas) {
  driver::Compiled compiled;
  EXPECT_TRUE(considered(compiled).empty());
  EXPECT_EQ(strategies_text({}), "");
  compiled.plan.strategy = "of another attnc";
  ASSERT_EQ(considered(compiled).size(), 1U);
  EXPECT_TRUE(considered(compiled).front().chosen);
  EXPECT_EQ(considered(compiled).front().engine, "");
  compiled.plan.choice = {{"native", 0.5, 0.6}, {"native", 0.4, std::nullopt, "\x1b[2J spills"}};
  EXPECT_EQ(
      strategies_text(considered(compiled)),
      "  engine  strategy           predicted  measured  workspace  verdict\n"
      "  native  native              0.500 ms  0.600 ms        0 B  chosen\n"
      "  native  native, first try   0.400 ms         -          -  refused: \\x1b[2J spills\n");
}

TEST(Strategies, JsonHasTheSame) {
  const Json json = to_json(considered(example()));
  ASSERT_EQ(json.size(), 7U);
  EXPECT_EQ(json[0].dump(),
            R"({"strategy":"native","engine":"native","verdict":"chosen","predicted_ms":0.5,)"
            R"("workspace_bytes":0})");
  EXPECT_EQ(json[2]["verdict"], "slower");
  EXPECT_FALSE(json[2].contains("workspace_bytes"));
  EXPECT_EQ(json[3]["reason"], "the worker died");
}

}  // namespace
}  // namespace attn::tools
