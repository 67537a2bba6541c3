// The exponentials that kernels compute without the special-function unit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/compiler/programs/warps_on_host.h"
#define asm ATTN_ASM_ON_HOST
#include "tests/host/gpu/cuda.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "attn/reals.cuh"
#pragma GCC diagnostic pop

namespace attn {
namespace {

double power(double x) { return kernels::power_of_two_by_polynomial(static_cast<float>(x)); }

TEST(Exponentials, PolynomialsHaveSmallErrors) {
  for (double x = -126; x <= 126; x += 0.00137) {
    const double exact = std::exp2(static_cast<double>(static_cast<float>(x)));
    ASSERT_NEAR(power(x) / exact, 1, 0x1p-13) << x;
  }
}

TEST(Exponentials, PolynomialsKeepNaN) {
  EXPECT_TRUE(std::isnan(power(std::numeric_limits<double>::quiet_NaN())));
}

}  // namespace
}  // namespace attn
