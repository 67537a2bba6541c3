#include "tools/written.h"

#include <gtest/gtest.h>

namespace attn::tools {
namespace {

TEST(Written, ATermIsFoundByItsPlace) {
  const support::Source source("x.attn",
                               "attention x {\n"
                               "  let near = q_idx - kv_idx\n"
                               "             < 4;\n"
                               "  mask (q_idx >= kv_idx && near) || h == 0;\n"
                               "  mask kv_idx > 1 && (h <  2 && b == 0);\n"
                               "}\n");
  const WrittenConditions written(source);
  EXPECT_EQ(written.at({3, 14}), (WrittenCondition{"near = q_idx - kv_idx < 4", 2}));
  EXPECT_EQ(written.at({4, 34}), (WrittenCondition{"(q_idx >= kv_idx && near) || h == 0", 4}));
  EXPECT_EQ(written.at({5, 15}), (WrittenCondition{"kv_idx > 1", 5}));
  EXPECT_EQ(written.at({5, 25}), (WrittenCondition{"h < 2", 5}));
  EXPECT_EQ(written.at({5, 34}), (WrittenCondition{"b == 0", 5}));
  EXPECT_EQ(written.at({1, 1}), WrittenCondition{});
  EXPECT_EQ(written.at({}), WrittenCondition{});
}

TEST(Written, JsonIsNotShown) {
  const support::Source source("x.attn.json", R"({"attention": "x", "mask": true})");
  EXPECT_EQ(WrittenConditions(source).at({1, 28}), WrittenCondition{});
}

}  // namespace
}  // namespace attn::tools
