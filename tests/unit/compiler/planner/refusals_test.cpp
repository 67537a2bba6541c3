#include "compiler/planner/refusals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attn::planner {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Refusal refusal(std::string strategy, std::string message, std::vector<std::string> notes = {}) {
  Refusal made{std::move(strategy), {ErrorCode::unsupported, std::move(message)}};
  made.error.notes = std::move(notes);
  return made;
}

TEST(Refusals, AreOneErrorWithNotes) {
  const Error error = error_of({refusal("native", "no scales of blocks", {"per_tensor works"}),
                                refusal("composite", "no sigmoid", {"normalize softmax works"})});
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_EQ(error.message, "no scales of blocks");
  EXPECT_THAT(error.notes, ElementsAre("per_tensor works", "strategy `composite`: no sigmoid",
                                       "  normalize softmax works"));
  EXPECT_THAT(error.payload, HasSubstr(R"("strategy":"native")"));
}

TEST(Refusals, AdviseKernelsOfOwnOnlyWhereTheseDoNotRefuse) {
  const std::string advice = "`--engine native` computes both directions";
  const Refusal other = refusal("composite", "no sigmoid", {advice});
  EXPECT_THAT(error_of({other}).notes, Contains(advice));
  EXPECT_THAT(error_of({other, refusal("unfused", "too slow")}).notes, Contains(advice));
  EXPECT_THAT(error_of({refusal("native", "too many heads"), other}).notes,
              ElementsAre("strategy `composite`: no sigmoid"));
}

TEST(Refusals, SayWhatFailedOtherwise) {
  Refusal failed = refusal("composite", "the worker died");
  failed.error.code = ErrorCode::worker;
  EXPECT_EQ(error_of({refusal("native", "no"), failed}).code, ErrorCode::worker);
}

}  // namespace
}  // namespace attn::planner
