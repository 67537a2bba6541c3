// Tests loading the stand-in driver. A process keeps the driver, so the steps depend on their order
// and are one test, in a process of its own: another test of this one may have loaded the driver.
#include "runtime/cuda/driver.h"

#include <gtest/gtest.h>

#include "runtime/cuda/device.h"
#include "tests/standin/standins.h"
#include "tests/support/own_process.h"

namespace attn::cuda {
namespace {

class DriverTest : public standin::StandinTest {};

TEST_F(DriverTest, AFailureToLoadIsTriedAgainAndTheDriverIsKept) {
  attn::testing::expect_in_own_process([] {
    const StandinRule fails = standin::fail_nth("cuInit", 1, CUDA_ERROR_NO_DEVICE);
    standin::cuda().control.script(&fails);
    EXPECT_EQ(driver().error().code, ErrorCode::cuda);
    const auto loaded = driver();
    ASSERT_TRUE(loaded.ok()) << loaded.error().to_text();
    EXPECT_TRUE(Device::open(0).ok());
    EXPECT_EQ(*driver(), *loaded);
    EXPECT_EQ(standin::cuda().control.calls("cuInit", STANDIN_ANY), 2);
  });
}

}  // namespace
}  // namespace attn::cuda
