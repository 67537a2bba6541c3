#include "tools/page/roofline.h"

#include <gtest/gtest.h>

namespace attn::tools::page {
namespace {

target::Gpu gpu_with(double matrix_rate, double bandwidth) {
  target::Gpu gpu;
  gpu.matrix_rate = matrix_rate;
  gpu.bandwidth = bandwidth;
  return gpu;
}

// 100 TFLOP/s and 1000 GB/s meet at 100 FLOP per byte.
const target::Gpu kGpu = gpu_with(100, 1000);

TEST(Roofline, Compute) {
  const Workload work{.name = "forward", .flops = 1e12, .bytes = 1'000'000'000, .predicted_ms = 20};
  EXPECT_EQ(intensity_of(work), 1000);
  EXPECT_EQ(limit_of(work, kGpu), 100);
  EXPECT_FALSE(is_memory_bound(work, kGpu));
  EXPECT_DOUBLE_EQ(share_of_limit(work, 20, kGpu), 0.5);
  EXPECT_EQ(share_of_limit(work, 0, kGpu), 0);
}

TEST(Roofline, Memory) {
  const Workload work{.name = "forward", .flops = 1e10, .bytes = 1'000'000'000, .predicted_ms = 2};
  EXPECT_EQ(limit_of(work, kGpu), 10);
  EXPECT_TRUE(is_memory_bound(work, kGpu));
  EXPECT_DOUBLE_EQ(share_of_limit(work, 2, kGpu), 0.5);
}

TEST(Roofline, NoBytes) {
  const Workload work{.name = "forward", .flops = 1e10};
  EXPECT_EQ(intensity_of(work), 0);
  EXPECT_EQ(share_of_limit(work, 1, kGpu), 0);
}

TEST(Roofline, View) {
  Workload work{.name = "forward", .flops = 1e12, .bytes = 1'000'000'000, .predicted_ms = 20};
  work.measured_ms = 25;
  const Json view = roofline_view({work}, kGpu, "gpu");
  EXPECT_EQ(view["ridge"], "100");
  EXPECT_EQ(view["rows"][0]["bound"], "compute");
  EXPECT_EQ(view["rows"][0]["least"], "10.000 ms");
  EXPECT_EQ(view["rows"][0]["share"], "50.0 %");
  EXPECT_EQ(view["rows"][0]["measured"], "25.000 ms");
  ASSERT_EQ(view["chart"]["points"].size(), 2U);
  EXPECT_EQ(view["chart"]["points"][0]["label"], "forward, predicted");
  EXPECT_EQ(view["chart"]["points"][1]["label"], "forward, measured");
}

TEST(Roofline, NoShareOfAssumedValues) {
  const Workload work{.name = "forward",
                      .flops = 1e12,
                      .is_assumed = true,
                      .bytes = 1'000'000'000,
                      .predicted_ms = 5};
  const Json view = roofline_view({work}, kGpu, "gpu");
  EXPECT_TRUE(view["rows"][0]["share"].is_null());
  EXPECT_EQ(view["rows"][0]["predicted"], "5.000 ms");
  EXPECT_EQ(view["chart"]["points"][0]["label"], "forward, limit");
}

TEST(Roofline, NoWork) {
  EXPECT_TRUE(roofline_view({}, kGpu, "gpu").is_null());
  EXPECT_TRUE(roofline_view({{.name = "forward"}}, kGpu, "gpu").is_null());
}

}  // namespace
}  // namespace attn::tools::page
