#include "runtime/cache/key.h"

#include <gtest/gtest.h>

#include "tests/unit/runtime/cache/cache_testing.h"

namespace attn::cache {
namespace {

TEST(Key, TheTextDecides) {
  const Key one = testing::key("one");
  EXPECT_EQ(one, Key(one));
  EXPECT_EQ(one, testing::key("one"));
  EXPECT_NE(one, testing::key("two"));
  EXPECT_NE(one, Key(plan::Signature{"two", one.hash()}));
}

TEST(Key, KnowsDeviceAndVersion) {
  plan::Plan plan = plan::testing::sample_plan();
  const Key key = testing::key(plan);
  EXPECT_EQ(key, testing::key(plan::testing::signed_again(plan)));
  plan.cudnn_version += 1;
  EXPECT_NE(key, testing::key(plan::testing::signed_again(plan)));
  plan.cudnn_version -= 1;
  plan.target.device_json += " ";
  EXPECT_NE(key, testing::key(plan::testing::signed_again(plan)));
}

}  // namespace
}  // namespace attn::cache
