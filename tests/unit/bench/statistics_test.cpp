#include "bench/statistics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/timing.h"

namespace attn::bench {
namespace {

TEST(Quantile, InterpolatesBetweenSortedSamples) {
  EXPECT_EQ(quantile({3}, 0.9), 3);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_EQ(quantile({5, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({1, 2}, 0), 1);
  EXPECT_EQ(quantile({1, 2}, 1), 2);
  EXPECT_DOUBLE_EQ(quantile({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.9), 9);
}

TEST(TimingJson, IsJson) {
  const auto device = json_of(Timing{1.5, 1.25, 2, 700, {1, 2, 3}});
  EXPECT_EQ(device["median_ms"], 1.5);
  EXPECT_EQ(device["p10_ms"], 1.25);
  EXPECT_EQ(device["p90_ms"], 2.0);
  EXPECT_EQ(device["runs"], 3);
  EXPECT_EQ(device["tflops"], 700.0);
  const std::vector<HostTiming> timings = {{"bare", 7.25, 1}, {"execute", 7.5, 1.0345}};
  const auto host = json_of(timings);
  EXPECT_EQ(host["execute_us"], 7.5);
  EXPECT_EQ(host["bare_us"], 7.25);
  EXPECT_EQ(host["execute_ratio"], 1.0345);
}

}  // namespace
}  // namespace attn::bench
