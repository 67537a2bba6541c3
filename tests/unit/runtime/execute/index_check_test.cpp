#include "runtime/execute/index_check.h"

#include <gtest/gtest.h>

namespace attn::execute {
namespace {

plan::IndexCheck check() {
  plan::IndexCheck check;
  check.faults = {{"t[doc[b]]", "an index is outside the tensor"}, {"b // n", "the divisor is 0"}};
  check.scores = {2, 1, 5, 7};
  return check;
}

TEST(IndexCheck, SaysWhatAndWhere) {
  // Row 3, column 6 of batch entry 1.
  const std::uint64_t score = (1 * 5 + 3) * 7 + 6;
  const Error first = describe_fault(check(), score << 16 | 1);
  EXPECT_EQ(first.code, ErrorCode::binding);
  EXPECT_EQ(first.message,
            "t[doc[b]]: an index is outside the tensor, at b 1, h 0, row 3, column 6");
  EXPECT_EQ(describe_fault(check(), 2).message,
            "b // n: the divisor is 0, at b 0, h 0, row 0, column 0");
}

TEST(IndexCheck, ANumberThatIsNoneNamesNoExpression) {
  EXPECT_EQ(describe_fault(check(), 3).message,
            "an expression: it has no value, at b 0, h 0, row 0, column 0");
}

}  // namespace
}  // namespace attn::execute
