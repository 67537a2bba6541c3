// Tests loading the stand-in driver. A process keeps the driver, so the steps depend on their order
// and are one test.
#include "runtime/cuda/driver.h"

#include <gtest/gtest.h>

#include "runtime/cuda/device.h"
#include "tests/standin/standins.h"

namespace attn::cuda {
namespace {

class DriverTest : public standin::StandinTest {};

TEST_F(DriverTest, AFailureToLoadIsTriedAgainAndTheDriverIsKept) {
  const StandinRule fails = standin::fail_nth("cuInit", 1, CUDA_ERROR_NO_DEVICE);
  standin::cuda().control.script(&fails);
  EXPECT_EQ(driver().error().code, ErrorCode::cuda);
  const auto loaded = driver();
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_text();
  EXPECT_TRUE(Device::open(0).ok());
  EXPECT_EQ(*driver(), *loaded);
  EXPECT_EQ(standin::cuda().control.calls("cuInit", STANDIN_ANY), 2);
}

}  // namespace
}  // namespace attn::cuda
