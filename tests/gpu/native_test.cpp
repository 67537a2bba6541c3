// Plans of the engine `native` alone: against the reference, the same bits in every run, on two
// streams at once, and in CUDA graphs. For compute capability 9.0.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "compiler/driver/driver.h"
#include "compiler/engines/native/kernel.h"
#include "compiler/nvrtc/nvrtc.h"
#include "runtime/execute/cuda_graph.h"
#include "tests/gpu/gpu_test.h"
#include "tools/compare.h"
#include "tools/execution.h"
#include "tools/inputs.h"
#include "tools/placement.h"

namespace attn::execute {
namespace {

using ::testing::ContainsRegex;

struct Case {
  const char* name;
  const char* clauses;
  const char* kernel = "";  // a regular expression that its text matches
};

void PrintTo(const Case& what, std::ostream* out) { *out << what.name; }

const char* const kSeveralParts = "kSplits = ([2-9]|[1-9][0-9])";

const Case kCases[] = {
    {"causal",
     "dims B = 2, Hq = 4, Hkv = 2, Sq = 300, Skv = 300, D = 128; mask q_idx >= kv_idx; "
     "outputs o, lse;"},
    {"bottom_right_f16",
     "dims B = 1, Hq = 7, Hkv = 1, Sq = 129, Skv = 777, D = 64; dtype f16; "
     "mask q_idx + Skv - Sq >= kv_idx; outputs o, lse;"},
    {"small_depth", "dims B = 2, Hq = 2, Sq = 65, Skv = 200, D = 24; outputs o, lse;"},
    {"other_widths",
     "dims B = 1, Hq = 4, Hkv = 2, Sq = 200, Skv = 300, Dqk = 192, Dv = 128; outputs o, lse;"},
    {"large_depth",
     "dims B = 1, Hq = 2, Sq = 128, Skv = 500, D = 256; mask kv_idx % 3 != 2; outputs o, lse;"},
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
     "dims B = 2, Hq = 4, Hkv = 2, Sq = 400, Skv = 400, D = 64; tensor d: i32[Skv] = i0 // 37; "
     "mask d[kv_idx] == d[q_idx] && q_idx >= kv_idx; outputs o, lse;",
     "attn_lists"},
    {"lengths",
     "dims B = 5, Hq = 2, Sq = 100, Skv = 300, D = 64; "
     "lengths q = [100, 0, 37, 1, 100], kv = [300, 128, 1, 299, 0]; outputs o, lse;"},
    {"table",
     "dims B = 1, Hq = 4, Sq = 100, Skv = 200, D = 128; tensor t: bf16[Hq, Sq, Skv]; "
     "score score + t[h, q_idx, kv_idx]; outputs o, lse;",
     "kTables = [1-9]"},
    {"packed",
     "dims B = 6, Hq = 4, Hkv = 2, Sq = 200, Skv = 300, D = 128; layout thd; "
     "lengths q = [0, 200, 7, 0, 129, 0], kv = [17, 300, 0, 0, 129, 1]; mask q_idx >= kv_idx; "
     "outputs o, lse;",
     "kThdQ = true"},
    {"packed_bottom_right_f16",
     "dims B = 3, Hq = 4, Hkv = 4, Sq = 200, Skv = 300, D = 64; dtype f16; layout thd; "
     "align bottom_right; lengths q = [64, 65, 100], kv = [64, 300, 129]; mask q_idx >= kv_idx; "
     "outputs o, lse, max, sum_exp;"},
    {"pages",
     "dims B = 4, Hq = 8, Hkv = 2, Sq = 100, Skv = 300, D = 128; layout paged(page = 64); "
     "align bottom_right; lengths kv = [300, 100, 193, 299]; mask q_idx >= kv_idx; "
     "outputs o, lse;",
     "kKeyPage = 64.*kBand = true"},
    {"pages_of_12_and_5",
     "dims B = 3, Hq = 8, Hkv = 2, Sq = 3, Skv = 300, D = 64; dtype f16; "
     "layout k: paged(page = 12), v: paged(page = 5); lengths kv = [300, 0, 29]; "
     "outputs o, lse;",
     "kValuePage = 5"},
    {"sink",
     "dims B = 2, Hq = 6, Hkv = 2, Sq = 129, Skv = 257, D = 80; tensor s: f32[Hq]; sink s[h]; "
     "mask kv_idx - q_idx >= 50; "
     "outputs o, lse, max, sum_exp, max_with_sink, sum_exp_with_sink, lse_without_sink;"},
    {"dropout",
     "dims B = 2, Hq = 4, Hkv = 2, Sq = 250, Skv = 300, D = 128; dropout 0.3; "
     "mask q_idx >= kv_idx; outputs o, lse;",
     "kRandom = true"},
    {"classes",
     "dims B = 2, Hq = 4, Hkv = 2, Sq = 256, Skv = 512, D = 64; layout bshd; "
     "mask (q_idx - kv_idx) % 4 == 0 && q_idx - kv_idx < 200; outputs o, lse;",
     "kStatisticsClass = [1-9].*kHeadsOfClass = 4;"},
    {"grid",
     "dims B = 2, Hq = 4, Hkv = 2, Sq = 1024, Skv = 1024, D = 64; "
     "mask abs(q_idx // 64 - kv_idx // 64) <= 4 && abs(q_idx % 64 - kv_idx % 64) <= 3; "
     "outputs o, lse;",
     "kPatches = true"},
    {"splits_of_one_row",
     "dims B = 1, Hq = 8, Hkv = 2, Sq = 1, Skv = 5000, D = 128; outputs o, lse, max, sum_exp;",
     kSeveralParts},
    {"splits_of_many_rows",
     "dims B = 2, Hq = 8, Hkv = 2, Sq = 70, Skv = 8000, D = 64; dtype f16; "
     "align bottom_right; mask q_idx >= kv_idx; lengths kv = [8000, 1037]; tensor s: f32[Hq]; "
     "sink s[h]; outputs o, lse, lse_without_sink;",
     kSeveralParts},
};

ir::Attention attention_of(const std::string& clauses) {
  const support::Source source("native.attn", "attention a { " + clauses + " }");
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, {}, sink);
  EXPECT_TRUE(attention) << diag::to_text(sink);
  return *attention;
}

reference::Inputs inputs_of(const ir::Attention& attention) {
  return tools::make_inputs(attention, {}, tools::Missing::pattern, tools::Needs::forward)
      .value()
      .values;
}

plan::Plan compiled_for(const cuda::Device& device, const std::string& clauses) {
  const support::Source source("native.attn", "attention a { " + clauses + " }");
  driver::CompileOptions options;
  options.target = {device.name(), device.sm(), ""};
  options.lowering = "native";
  auto compiled = driver::compile(attention_of(clauses), source, {}, options);
  EXPECT_TRUE(compiled.ok()) << compiled.error().to_text();
  return std::move(compiled).value().plan;
}

const plan::KernelStep& kernels_of(const plan::Plan& plan) {
  return std::get<plan::KernelStep>(plan.program.steps.back());
}

class NativeOnDevice : public testing::GpuTest, public ::testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device().sm() != 90) GTEST_SKIP() << "SKIPPED: needs compute capability 9.0";
    plan_ = compiled_for(device(), GetParam().clauses);
    ASSERT_TRUE(plan_.compiled.empty());
    std::string text = kernels_of(plan_).source;
    std::ranges::replace(text, '\n', ' ');
    EXPECT_THAT(text, ContainsRegex(GetParam().kernel));
    attention_ = attention_of(GetParam().clauses);
    inputs_ = inputs_of(attention_);
    placement_.emplace(
        tools::Placement::create(plan_.program, inputs_, tools::Unused::anything).value());
  }

  DeviceTensors upload() const { return upload(*placement_); }
  DeviceTensors upload(const tools::Placement& placement) const {
    DeviceTensors tensors = DeviceTensors::allocate(device(), plan_.program).value();
    for (const plan::TensorInfo& tensor : plan_.program.tensors) {
      if (tensor.is_output()) continue;
      const std::vector<std::byte> bytes = placement.bytes_of(tensor).value();
      EXPECT_TRUE(tensors.upload_bytes(tensor.name, bytes).ok()) << tensor.name;
    }
    forget(tensors);
    return tensors;
  }

  Arguments arguments(const DeviceTensors& tensors) const {
    Arguments all = tensors.arguments();
    for (const plan::ParamInfo& param : plan_.program.params) {
      all.scalar(param.name, param.dtype, inputs_.params.at(param.name));
    }
    return all;
  }

  std::vector<plan::TensorInfo> outputs() const {
    std::vector<plan::TensorInfo> all;
    std::ranges::copy_if(plan_.program.tensors, std::back_inserter(all),
                         &plan::TensorInfo::is_output);
    return all;
  }

  // Makes every element of the outputs NaN.
  void forget(DeviceTensors& tensors) const {
    for (const plan::TensorInfo& output : outputs()) {
      ASSERT_TRUE(tensors.fill(output.name, 0xff).ok());
    }
  }

  using Bytes = std::vector<std::vector<std::byte>>;
  Bytes bytes_of(const DeviceTensors& tensors) const {
    Bytes all;
    for (const plan::TensorInfo& output : outputs()) {
      all.push_back(tensors.download_bytes(output.name).value());
    }
    return all;
  }

  // What differs from the reference of `attention`.
  std::string differences(const DeviceTensors& tensors, const ir::Attention& attention) const {
    tools::Outputs found;
    for (const plan::TensorInfo& output : outputs()) {
      const std::vector<std::byte> bytes = tensors.download_bytes(output.name).value();
      found[output.name] = placement_->logical(output, bytes).value();
    }
    const tools::Outputs right = tools::run_reference(attention, inputs_, {}).value();
    EXPECT_EQ(found.size(), right.size());
    std::string text;
    for (const tools::Comparison& each : tools::compare(found, right, attention.dtype)) {
      if (!each.agrees()) text += each.name + ": " + each.why + "\n";
    }
    return text;
  }
  void expect_right(const DeviceTensors& tensors) const {
    EXPECT_EQ(differences(tensors, attention_), "");
  }

  ir::Attention attention_;
  plan::Plan plan_;
  reference::Inputs inputs_;
  std::optional<tools::Placement> placement_;
};

TEST_P(NativeOnDevice, AgreesWithTheReferenceInEveryRun) {
  const auto runtime = Runtime::open().value();
  const Executable executable = Executable::load(runtime, plan_).value();
  DeviceTensors tensors = upload();
  Binding binding = executable.bind(arguments(tensors)).value();
  const cuda::Stream stream = cuda::Stream::create(device()).value();
  Bytes first;
  for (int run = 0; run < 10; ++run) {
    forget(tensors);
    ASSERT_TRUE(binding.execute(stream.handle()).ok());
    ASSERT_TRUE(stream.synchronize().ok());
    if (run == 0) first = bytes_of(tensors);
    EXPECT_EQ(bytes_of(tensors), first) << run;
  }
  expect_right(tensors);
  EXPECT_FALSE(runtime->has_loaded_cudnn());
  // The bounds are close enough to tell a key that is missing.
  const std::string without = GetParam().clauses + std::string(" mask kv_idx != 199;");
  EXPECT_NE(differences(tensors, attention_of(without)), "");
}

TEST_P(NativeOnDevice, BitsDoNotDependOnWhatIsUnused) {
  const Executable executable = Executable::load(plan_).value();
  const auto other = tools::Placement::create(plan_.program, inputs_).value();
  const DeviceTensors tensors = upload(), finite = upload(other);
  const cuda::Stream stream = cuda::Stream::create(device()).value();
  for (const DeviceTensors* each : {&tensors, &finite})
    ASSERT_TRUE(executable.bind(arguments(*each)).value().execute(stream.handle()).ok());
  ASSERT_TRUE(stream.synchronize().ok());
  EXPECT_EQ(bytes_of(tensors), bytes_of(finite));
}

TEST_P(NativeOnDevice, RunsOnTwoStreamsAtOnce) {
  const Executable executable = Executable::load(plan_).value();
  const DeviceTensors one = upload(), other = upload();
  Binding first = executable.bind(arguments(one)).value();
  Binding second = executable.bind(arguments(other)).value();
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
  CudaGraph graph = CudaGraph::capture(executable.bind(arguments(tensors)).value()).value();
  for (int run = 0; run < 3; ++run) {
    forget(tensors);
    ASSERT_TRUE(graph.launch(stream.handle()).ok());
    ASSERT_TRUE(stream.synchronize().ok());
    expect_right(tensors);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, NativeOnDevice, ::testing::ValuesIn(kCases),
                         [](const ::testing::TestParamInfo<Case>& given) {
                           return std::string(given.param.name);
                         });

// Nothing is copied to shared memory, so that all wait for it. Ends the process: the error stays.
[[noreturn]] void run_a_kernel_that_hangs() {
  dup2(STDERR_FILENO, STDOUT_FILENO);  // the GPU prints to stdout
  const cuda::Device device = cuda::Device::open(0).value();
  plan::Plan plan = compiled_for(device, kCases[0].clauses);
  const std::string source = engines::native::watch_text(engines::native::Tile{}) +
                             "#include \"attn/hopper.cuh\"\n#define copy_box(...) ((void)0)\n" +
                             kernels_of(plan).source;
  plan.kernels.back() = nvrtc::compile_kernel(source, 90, "", codegen::KernelKind::general).value();
  const Executable executable = Executable::load(plan).value();
  DeviceTensors tensors = DeviceTensors::allocate(device, plan.program).value();
  const cuda::Stream stream = cuda::Stream::create(device).value();
  const Status launched = executable.bind(tensors.arguments()).value().execute(stream.handle());
  const Status ended = stream.synchronize();
  std::exit(launched.ok() && !ended.ok() ? 3 : 0);
}

class NativeThatHangs : public testing::GpuTest {};

TEST_F(NativeThatHangs, NamesTheBarrier) {
  if (device().sm() != 90) GTEST_SKIP() << "SKIPPED: needs compute capability 9.0";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_a_kernel_that_hangs(), ::testing::ExitedWithCode(3),
              "waits until (queries|keys|values) [0-9] is (full|empty)");
}

}  // namespace
}  // namespace attn::execute
