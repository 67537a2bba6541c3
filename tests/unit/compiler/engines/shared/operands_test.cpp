#include "compiler/engines/shared/operands.h"

#include <gmock/gmock.h>

#include "tests/unit/compiler/engines/example.h"

namespace attn::engines {
namespace {

using ::testing::ElementsAre;

TEST(LayoutOwner, GradientsLieAsWhatTheyAreOf) {
  for (const char* name : {"q", "k", "v", "o"}) EXPECT_EQ(layout_owner(name), name);
  EXPECT_EQ(layout_owner("dq"), "q");
  EXPECT_EQ(layout_owner("dk"), "k");
  EXPECT_EQ(layout_owner("dv"), "v");
  EXPECT_EQ(layout_owner("do"), "o");
  for (const char* name : {"lse", "max", "sum_exp"}) EXPECT_EQ(layout_owner(name), "o");
}

TEST(LayoutOwner, GivesDimsAndStridesOfEach) {
  ir::Attention attention = testing::example();
  attention.dims.set(ir::Dim::Dv, 32);
  attention.layouts["o"] = {ir::LayoutKind::bhsd, {}, 0, 0};
  EXPECT_THAT(logical_dims(attention, "dq"), ElementsAre(2, 8, 128, 64));
  EXPECT_THAT(logical_dims(attention, "dk"), ElementsAre(2, 2, 256, 64));
  EXPECT_THAT(logical_dims(attention, "dv"), ElementsAre(2, 2, 256, 32));
  EXPECT_THAT(logical_dims(attention, "do"), ElementsAre(2, 8, 128, 32));
  EXPECT_THAT(stored_strides(attention, "do"), ElementsAre(8 * 128 * 32, 128 * 32, 32, 1));
  EXPECT_THAT(stored_strides(attention, "dv"), ElementsAre(256 * 2 * 32, 32, 2 * 32, 1));
}

}  // namespace
}  // namespace attn::engines
