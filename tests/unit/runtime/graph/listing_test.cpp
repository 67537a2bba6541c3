#include "runtime/graph/listing.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace attn {
namespace {

using Dims = std::vector<std::int64_t>;

TEST(Quoted, KeepsWordsAndEscapesTheRest) {
  EXPECT_EQ(quoted("q_idx \xC3\xA9"), "\"q_idx \xC3\xA9\"");
  EXPECT_EQ(quoted("a\"b\\c\nd\x01\x7F"), "\"a\\\"b\\\\c\\nd\\x01\\x7f\"");
}

TEST(Quoted, IsOneLineAndNeverTheSameForTwoInputs) {
  std::set<std::string> seen;
  const std::string alphabet("\\\"n\nx01\x01", 8);
  for (const char a : alphabet) {
    for (const char b : alphabet) {
      for (const char c : alphabet) {
        const std::string input = {a, b, c};
        const std::string output = escaped(input);
        EXPECT_EQ(output.find('\n'), std::string::npos);
        seen.insert(output);
      }
    }
  }
  EXPECT_EQ(seen.size(), 8U * 8 * 8);
}

TEST(TypeText, ShowsStridesUnlessRowMajor) {
  EXPECT_EQ(type_text(DType::bf16, Dims{2, 3}, Dims{3, 1}), "bf16[2,3]");
  EXPECT_EQ(type_text(DType::boolean, Dims{2, 3}, Dims{1, 2}), "bool[2,3] strides [1,2]");
  EXPECT_EQ(type_text(DType::i32, Dims{}, Dims{}), "i32[]");
  EXPECT_EQ(type_text(DType::i32, Dims{4}, Dims{}), "i32[4] strides []");
}

}  // namespace
}  // namespace attn
