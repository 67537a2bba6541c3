#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "bench/flashinfer_peer/case_lines.h"

namespace attn::flashinfer_peer {
namespace {

using ::testing::ElementsAre;

std::vector<Case> cases_of(const std::string& text) {
  std::istringstream lines(text);
  return read_cases(lines);
}

std::string refusal_of(const std::string& text) {
  try {
    cases_of(text);
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
  return "";
}

TEST(FlashInferCases, AreLinesOfNumbersThatMayBeRepeated) {
  const std::vector<Case> cases = cases_of("# name page lengths rows\n\nmixed 16 7x2,9 1x2,3\n");
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].name, "mixed");
  EXPECT_EQ(cases[0].page, 16);
  EXPECT_THAT(cases[0].lengths, ElementsAre(7, 7, 9));
  EXPECT_THAT(cases[0].rows, ElementsAre(1, 1, 3));
  EXPECT_FALSE(cases[0].one_row());
}

TEST(FlashInferCases, OneNumberOfRowsIsThatOfEverySequence) {
  const std::vector<Case> cases = cases_of("a 64 5,6 1\nb 64 5,6 2");
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_THAT(cases[0].rows, ElementsAre(1, 1));
  EXPECT_TRUE(cases[0].one_row());
  EXPECT_THAT(cases[1].rows, ElementsAre(2, 2));
}

TEST(FlashInferCases, AreRefusedWithTheirLine) {
  EXPECT_EQ(refusal_of("a 16 5"), "a case is NAME PAGE LENGTHS ROWS: a 16 5");
  EXPECT_EQ(refusal_of("a 16 5 1 more"), "a case is NAME PAGE LENGTHS ROWS: a 16 5 1 more");
  EXPECT_EQ(refusal_of("a 16 five 1"), "'five' is not a number: a 16 five 1");
  EXPECT_EQ(refusal_of("a 16 0 1"), "'0' is not a positive number: a 16 0 1");
  EXPECT_EQ(refusal_of("a 16 5k 1"), "'5k' is not a positive number: a 16 5k 1");
  EXPECT_EQ(refusal_of("a 16 5,5,5 1,1"), "not as many rows as lengths: a 16 5,5,5 1,1");
  EXPECT_EQ(refusal_of("a 16 5 6"), "a sequence has more rows than keys: a 16 5 6");
}

}  // namespace
}  // namespace attn::flashinfer_peer
