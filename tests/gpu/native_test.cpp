// Plans of the engine `native` alone: against the reference, the same bits in every run, on two
// streams at once, and in CUDA graphs. For compute capability 9.0.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <random>

#include "compiler/driver/driver.h"
#include "compiler/reference/evaluate.h"
#include "runtime/execute/cuda_graph.h"
#include "tests/gpu/gpu_test.h"

namespace attn::execute {
namespace {

struct Case {
  const char* name;
  const char* clauses;
  // Element i of a tensor that is not of floats.
  std::function<double(std::size_t)> integer = [](std::size_t) { return 0; };
};

const Case kCases[] = {
    {"causal", "dims B = 2, Hq = 4, Hkv = 2, Sq = 300, Skv = 300, D = 128; mask q_idx >= kv_idx;"},
    {"bottom_right_f16",
     "dims B = 1, Hq = 7, Hkv = 1, Sq = 129, Skv = 777, D = 64; dtype f16; "
     "mask q_idx + Skv - Sq >= kv_idx;"},
    {"small_depth", "dims B = 2, Hq = 2, Sq = 65, Skv = 200, D = 24; outputs o, lse;"},
    {"other_widths", "dims B = 1, Hq = 4, Hkv = 2, Sq = 200, Skv = 300, Dqk = 192, Dv = 128;"},
    {"large_depth", "dims B = 1, Hq = 2, Sq = 128, Skv = 500, D = 256; mask kv_idx % 3 != 1;"},
    {"softcap_and_statistics",
     "dims B = 1, Hq = 4, Sq = 150, Skv = 250, D = 128; score 30.0 * tanh(score / 30.0); "
     "mask q_idx - kv_idx < 40 && kv_idx - q_idx < 90; outputs o, lse, max, sum_exp;"},
    {"width_80", "dims B = 2, Hq = 4, Hkv = 2, Sq = 300, Skv = 300, D = 80; mask q_idx >= kv_idx;"},
    {"width_512", "dims B = 1, Hq = 2, Sq = 70, Skv = 300, D = 512; outputs o, lse;"},
    {"latent",
     "dims B = 1, Hq = 128, Hkv = 1, Sq = 1, Skv = 1500, Dqk = 576, Dv = 512; outputs o, lse;"},
    {"table_f32",
     "dims B = 1, Hq = 4, Sq = 100, Skv = 200, D = 128; tensor t: f32[Hq, Sq, Skv]; "
     "score score + t[h, q_idx, kv_idx];"},
    {"documents",
     "dims B = 2, Hq = 4, Hkv = 2, Sq = 400, Skv = 400, D = 64; tensor d: i32[B, Skv]; "
     "mask d[b, kv_idx] == d[b, q_idx] && q_idx >= kv_idx;",
     [](std::size_t i) { return static_cast<double>(i % 400 / 37); }},
    {"lengths", "dims B = 3, Hq = 2, Sq = 100, Skv = 300, D = 64; lengths q, kv; outputs o, lse;",
     [](std::size_t i) { return static_cast<double>(i * 47); }},
    {"table",
     "dims B = 1, Hq = 4, Sq = 100, Skv = 200, D = 128; tensor t: bf16[Hq, Sq, Skv]; "
     "score score + t[h, q_idx, kv_idx];"},
};

class NativeOnDevice : public testing::GpuTest, public ::testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device().sm() != 90) GTEST_SKIP() << "SKIPPED: needs compute capability 9.0";
    compile();
    for (const plan::TensorInfo& tensor : plan_.program.tensors) {
      if (!tensor.is_output()) inputs_.tensors[tensor.name] = values_of(tensor);
    }
  }

  void compile() {
    const support::Source source("native.attn",
                                 std::string("attention a { ") + GetParam().clauses + " }");
    diag::Sink sink(source);
    const auto attention = driver::front_end(source, {}, sink);
    ASSERT_TRUE(attention) << diag::to_text(sink);
    attention_ = *attention;
    driver::CompileOptions options;
    options.target = {device().name(), device().sm(), ""};
    options.lowering = "native";
    auto compiled = driver::compile(attention_, source, {}, options);
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
    plan_ = std::move(compiled->plan);
    ASSERT_TRUE(plan_.compiled.empty());
  }

  io::HostTensor values_of(const plan::TensorInfo& tensor) {
    io::HostTensor values{DType::f64, tensor.dims, {}};
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < io::element_count(tensor.dims); ++i) {
      values.values.push_back(is_float(tensor.dtype)
                                  ? normal(random_)
                                  : GetParam().integer(static_cast<std::size_t>(i)));
    }
    return values;
  }

  DeviceTensors upload() const {
    DeviceTensors tensors = DeviceTensors::allocate(device(), plan_.program).value();
    for (const auto& [name, values] : inputs_.tensors) {
      EXPECT_TRUE(tensors.upload(name, values).ok()) << name;
    }
    for (const std::string& name : outputs()) EXPECT_TRUE(tensors.fill(name, 0xff).ok());
    return tensors;
  }

  std::vector<std::string> outputs() const {
    std::vector<std::string> names;
    for (const plan::TensorInfo& tensor : plan_.program.tensors) {
      if (tensor.is_output()) names.push_back(tensor.name);
    }
    return names;
  }

  using Bytes = std::vector<std::vector<std::byte>>;
  Bytes bytes_of(const DeviceTensors& tensors) const {
    Bytes all;
    for (const std::string& name : outputs()) all.push_back(tensors.download_bytes(name).value());
    return all;
  }

  // Rounding of the 16-bit weights and outputs; -inf of empty rows is equal.
  void expect_right(const DeviceTensors& tensors) const {
    const auto evaluated = reference::evaluate(attention_, inputs_, {});
    ASSERT_TRUE(evaluated.ok()) << evaluated.error().to_text();
    const std::map<std::string, const io::HostTensor*> wanted = {{"o", &evaluated->o},
                                                                 {"lse", &evaluated->lse},
                                                                 {"max", &evaluated->max},
                                                                 {"sum_exp", &evaluated->sum_exp}};
    for (const std::string& name : outputs()) {
      const std::vector<double>& right = wanted.at(name)->values;
      const io::HostTensor got = tensors.download(name).value();
      ASSERT_EQ(got.values.size(), right.size());
      for (std::size_t i = 0; i < right.size(); ++i) {
        if (got.values[i] == right[i]) continue;
        ASSERT_NEAR(got.values[i], right[i], 0.02 + 0.02 * std::abs(right[i])) << name << " " << i;
      }
    }
  }

  ir::Attention attention_;
  plan::Plan plan_;
  reference::Inputs inputs_;
  std::mt19937 random_{7};
};

TEST_P(NativeOnDevice, AgreesWithTheReferenceInEveryRun) {
  const auto runtime = Runtime::open().value();
  const Executable executable = Executable::load(runtime, plan_).value();
  DeviceTensors tensors = upload();
  Binding binding = executable.bind(tensors.arguments()).value();
  const cuda::Stream stream = cuda::Stream::create(device()).value();
  Bytes first;
  for (int run = 0; run < 10; ++run) {
    for (const std::string& name : outputs()) ASSERT_TRUE(tensors.fill(name, 0xff).ok());
    ASSERT_TRUE(binding.execute(stream.handle()).ok());
    ASSERT_TRUE(stream.synchronize().ok());
    if (run == 0) first = bytes_of(tensors);
    EXPECT_EQ(bytes_of(tensors), first) << run;
  }
  expect_right(tensors);
  EXPECT_FALSE(runtime->has_loaded_cudnn());
}

TEST_P(NativeOnDevice, RunsOnTwoStreamsAtOnce) {
  const Executable executable = Executable::load(plan_).value();
  const DeviceTensors one = upload(), other = upload();
  Binding first = executable.bind(one.arguments()).value();
  Binding second = executable.bind(other.arguments()).value();
  const cuda::Stream a = cuda::Stream::create(device()).value();
  const cuda::Stream b = cuda::Stream::create(device()).value();
  for (int run = 0; run < 50; ++run) {
    ASSERT_TRUE(first.execute(a.handle()).ok());
    ASSERT_TRUE(second.execute(b.handle()).ok());
  }
  ASSERT_TRUE(a.synchronize().ok() && b.synchronize().ok());
  EXPECT_EQ(bytes_of(one), bytes_of(other));
  expect_right(one);
}

TEST_P(NativeOnDevice, RunsInAGraph) {
  const Executable executable = Executable::load(plan_).value();
  DeviceTensors tensors = upload();
  const cuda::Stream stream = cuda::Stream::create(device()).value();
  CudaGraph graph = CudaGraph::capture(executable.bind(tensors.arguments()).value()).value();
  for (int run = 0; run < 3; ++run) {
    for (const std::string& name : outputs()) ASSERT_TRUE(tensors.fill(name, 0xff).ok());
    ASSERT_TRUE(graph.launch(stream.handle()).ok());
    ASSERT_TRUE(stream.synchronize().ok());
    expect_right(tensors);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, NativeOnDevice, ::testing::ValuesIn(kCases),
                         [](const ::testing::TestParamInfo<Case>& given) {
                           return std::string(given.param.name);
                         });

}  // namespace
}  // namespace attn::execute
