#include "tests/gpu/gpu_test.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/cudnn/compile.h"
#include "runtime/worker/worker.h"

namespace attn::testing {
namespace {

// Aborts with the error: tests cannot continue without their setup.
template <typename T>
T must(Result<T> result) {
  if (!result.ok()) check_failed(__FILE__, __LINE__, "setup", result.error().to_text());
  return std::move(result).value();
}

void must(Status status) {
  if (!status.ok()) check_failed(__FILE__, __LINE__, "setup", status.error().to_text());
}

plan::Plan compile_causal() {
  const cuda::Device device = must(cuda::Device::open(0));
  cuda::Scope scope;
  must(scope.enter(device));
  const auto library = must(cudnn::Library::load());
  plan::Plan plan;
  plan.spec_name = "causal";
  plan.program = attention_program(
      {.batch = 2, .heads_q = 4, .heads_kv = 2, .seq_q = 256, .seq_kv = 256, .head_dim = 64},
      Mask::causal);
  plan.target = {device.name(), device.sm(), must(cudnn::device_json_of_current_device(*library))};
  const auto& step = std::get<plan::CudnnStep>(plan.program.steps[0]);
  const worker::Compiled compiled =
      must(worker::compile(step.graph, plan.target.device_json, worker::Options{}));
  plan.cudnn_version = compiled.cudnn_version;
  plan.compiled.push_back(compiled.step);
  plan.signature = plan::signature_of(plan);
  return plan;
}

}  // namespace

std::string no_device_because() {
  Result<int> count = cuda::device_count();
  if (!count.ok()) return count.error().message;
  return *count > 0 ? "" : "the driver reports none";
}

void GpuTest::SetUp() {
  if (const std::string why = no_device_because(); !why.empty()) {
    GTEST_SKIP() << "SKIPPED: no CUDA device (" << why << ")";
  }
  device_ = must(cuda::Device::open(0));
}

const plan::Plan& causal_plan() {
  static const plan::Plan plan = compile_causal();
  return plan;
}

Loaded load_causal() {
  execute::Executable executable = must(execute::Executable::load(causal_plan()));
  auto tensors = must(execute::DeviceTensors::allocate(executable.device(), executable.program()));
  auto inputs = random_inputs(executable.program());
  for (const auto& [name, values] : inputs) must(tensors.upload(name, values));
  return {std::move(executable), std::move(tensors), std::move(inputs)};
}

void Loaded::run(execute::Binding& binding) {
  must(tensors.fill("o", 0xff));
  must(tensors.fill("lse", 0xff));
  const cuda::Stream stream = must(cuda::Stream::create(executable.device()));
  must(binding.execute(stream.handle()));
  must(stream.synchronize());
}

execute::Arguments Loaded::arguments(double scale) const {
  return tensors.arguments().scalar("scale", scale);
}

}  // namespace attn::testing
