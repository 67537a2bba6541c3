#include "compiler/target/gpu.h"

#include <gtest/gtest.h>

#include "runtime/targets/targets.h"

namespace attn::target {
namespace {

Gpu of(const std::string& target) { return gpu_of(targets::find_target(target).value()); }

TEST(Gpu, TheH200IsTheReference) {
  Gpu gpu = of("h200");
  EXPECT_EQ(gpu.source, "NVIDIA H200 data sheet (SXM)");
  gpu.source = Gpu().source;
  EXPECT_EQ(gpu, Gpu());
  EXPECT_EQ(gpu_of({}), Gpu());
}

TEST(Gpu, NamedTargetsHaveTheirDataSheets) {
  for (const std::string& name : targets::target_names()) {
    const Gpu gpu = of(name);
    EXPECT_NE(gpu.source, "device properties") << name;
    EXPECT_EQ(gpu.measured, name == "h200") << name;
  }
  EXPECT_DOUBLE_EQ(of("l40s").matrix_rate, 362.05);
  EXPECT_DOUBLE_EQ(of("b200").rate(DType::e4m3), 4500);
  EXPECT_DOUBLE_EQ(of("b200").rate(DType::bf16), 2250);
  EXPECT_DOUBLE_EQ(of("a100").rate(DType::e4m3), 312);  // there are no products of 8 bits
  EXPECT_DOUBLE_EQ(of("b200").bandwidth, 8000);
}

// Whether a card's rate is that of its architecture, or half or twice as much, as cards of one
// capability have.
void expect_rate(double ratio, const std::string& name) {
  const double nearest = ratio > 1.4 ? 2 : ratio < 0.7 ? 0.5 : 1;
  EXPECT_NEAR(ratio / nearest, 1, 0.1) << name;
}

// The data sheets' figures are near what the device properties say.
TEST(Gpu, FiguresOfAnUnknownGpuComeFromItsProperties) {
  for (const std::string& name : targets::target_names()) {
    plan::Target target = targets::find_target(name).value();
    const Gpu listed = gpu_of(target);
    target.name = "some card";
    const std::size_t at = target.device_json.find("\"deviceName\"");
    ASSERT_NE(at, std::string::npos);
    target.device_json.replace(at, 12, "\"other\"");
    const Gpu gpu = gpu_of(target);
    EXPECT_EQ(gpu.source, "device properties");
    EXPECT_FALSE(gpu.measured);
    expect_rate(gpu.matrix_rate / listed.matrix_rate, name);
    expect_rate(gpu.rate(DType::e5m2) / listed.rate(DType::e5m2), name);
    EXPECT_NEAR(gpu.bandwidth / listed.bandwidth, 1, 0.05) << name;
  }
}

TEST(Gpu, NamesOfDevicesHaveAllOfADataSheetsWords) {
  for (const auto& [device, sheet] :
       {std::pair("NVIDIA L4", "NVIDIA L4 data sheet"),
        {"NVIDIA A10", "NVIDIA A10 data sheet"},
        {"NVIDIA L40", "device properties"},
        {"NVIDIA A10G", "device properties"},
        {"NVIDIA H100 80GB HBM3", "NVIDIA H100 data sheet (SXM)"},
        {"NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB data sheet (SXM)"}}) {
    const std::string json = "{\"deviceName\": \"" + std::string(device) + "\"}";
    EXPECT_EQ(gpu_of({"some card", 80, json}).source, sheet) << device;
  }
}

// Those of a plan file are not checked.
TEST(Gpu, PropertiesOfAnotherKindAreTakenAsAbsent) {
  for (const char* json : {"", "[]", "7", "{}", "{\"deviceName\": 5}", "{\"smClockRateKHz\": -1}",
                           "{\"multiProcessorCount\": \"132\", \"memClockRateKHz\": [1]}"}) {
    const Gpu gpu = gpu_of({"x", 90, json});
    EXPECT_EQ(gpu.multiprocessors, Gpu().multiprocessors) << json;
    EXPECT_EQ(gpu.clock, Gpu().clock) << json;
  }
}

TEST(Gpu, ACardWithFewerMultiprocessorsHasALowerRate) {
  plan::Target target = targets::find_target("h100").value();
  const std::string all = "\"multiProcessorCount\": 132";
  const std::size_t at = target.device_json.find(all);
  ASSERT_NE(at, std::string::npos);
  target.device_json.replace(at, all.size(), "\"multiProcessorCount\": 66");
  for (const DType dtype : {DType::bf16, DType::e4m3}) {
    EXPECT_DOUBLE_EQ(gpu_of(target).rate(dtype), of("h100").rate(dtype) / 2);
  }
}

}  // namespace
}  // namespace attn::target
