#include <gtest/gtest.h>

#include "runtime/picker/executables.h"
#include "tests/gpu/gpu_test.h"

namespace attn::picker {
namespace {

using plan::Dim;

class PickerOnGpu : public testing::GpuTest {};

TEST_F(PickerOnGpu, WhatIsPickedIsAnExecutableThatWasLoadedOnce) {
  PickerOptions options;
  options.plans.plans = {testing::causal_plan()};
  options.plans.plans[0].shape = plan::Shape{{{Dim::B, 2},
                                              {Dim::Hq, 4},
                                              {Dim::Hkv, 2},
                                              {Dim::Sq, 256},
                                              {Dim::Skv, 256},
                                              {Dim::Dqk, 64},
                                              {Dim::Dv, 64}},
                                             {}};
  const auto cache = std::make_shared<execute::ExecutableCache>(execute::Runtime::open().value());
  const auto picker = pick_executables(std::move(options), cache);
  ASSERT_TRUE(picker.ok()) << picker.error().to_text();
  for (int i = 0; i < 3; ++i) {
    const auto picked = (*picker)->pick({{Dim::Sq, 256}, {Dim::Skv, 256}});
    ASSERT_TRUE(picked.ok()) << picked.error().to_text();
    EXPECT_EQ(picked->fit, Fit::exact);
    EXPECT_EQ(picked->forward->signature(), testing::causal_plan().signature);
    EXPECT_EQ(picked->backward, nullptr);
  }
  EXPECT_EQ(cache->counts()[cache::Counter::load], 1U);
  EXPECT_EQ((*picker)->pick({{Dim::B, 1}}).error().code, ErrorCode::plan_shape);
}

}  // namespace
}  // namespace attn::picker
