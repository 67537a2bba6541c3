// A schedule that is made once for the executes of two bindings, in a CUDA graph too, and the check
// of a binding.
#include "runtime/execute/schedule.h"

#include <cmath>

#include "compiler/nvrtc/nvrtc.h"
#include "runtime/cuda/graph.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/schedule_options.h"
#include "tests/gpu/gpu_test.h"

namespace attn::execute::schedule_tests {
namespace {

constexpr std::int64_t kSequences = 2, kKeys = 5, kColumns = 32;

// The schedule is the number of sequences, the keys of a part, slots, flags, lengths, and how often
// it was made since its counter was zeroed; o of a sequence is its length and what is in q.
constexpr const char* kSource = R"(
extern "C" __global__ void schedule(const int* lengths, int* options, int* made) {
  const int* const at = *(const int* const*)options;
  const int count = at ? *at : options[2] ? options[2] - 1 : 2;
  made[0] = count;
  made[1] = options[4];
  made[2] = options[6];
  made[3] = lengths[0] > 5 || (count > 1 && lengths[1] > 5) ? 2 : 0;
  made[4] = lengths[0];
  made[5] = lengths[1];
  made[6] = atomicAdd(options + 8, 1);
}
extern "C" __global__ void scheduled(const int* made, float* parts, const float* q, float* o) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if ((int)blockIdx.x >= made[0]) return;
  const int i = blockIdx.x * 32 + threadIdx.x;
  parts[i] = q[i];
  o[i] = parts[i] + made[4 + blockIdx.x] + 100 * made[6];
}
)";

plan::KernelStep make_step() {
  const auto tensor = [](const char* name) { return plan::TensorOperand{name}; };
  plan::KernelStep step;
  step.outputs = {"schedule", "parts", "o"};
  step.zeroed = {"options"};
  step.source = kSource;
  step.launches = {{.kernel = "schedule",
                    .arguments = {tensor("lengths_kv"), tensor("options"), tensor("schedule")}},
                   {.kernel = "scheduled",
                    .grid = {kSequences, 1, 1},
                    .block = {kColumns, 1, 1},
                    .overlaps = true,
                    .arguments = {tensor("schedule"), tensor("parts"), tensor("q"), tensor("o")}}};
  step.schedule = plan::Schedule{.tensor = "schedule",
                                 .options = "options",
                                 .parts = "parts",
                                 .slots = 2,
                                 .slot_words = 4,
                                 .slot_elements = kColumns,
                                 .sequences = kSequences,
                                 .units = 1,
                                 .tile_rows = 1,
                                 .tile_keys = 1};
  return step;
}

plan::Plan make_plan_of_schedule(const cuda::Device& device) {
  plan::Plan plan;
  plan.target = {device.name(), device.sm(), ""};
  plan.shape.sizes.set(plan::Dim::Sq, 1);
  plan.shape.sizes.set(plan::Dim::Skv, kKeys);
  const std::vector<std::int64_t> dims = {kSequences, 1, 1, kColumns};
  const std::vector<std::int64_t> strides = {kColumns, kColumns, kColumns, 1};
  plan.program.tensors = {
      {"q", plan::TensorRole::query, DType::f32, dims, strides},
      {"lengths_kv", plan::TensorRole::captured, DType::i32, {kSequences}, {1}, 4},
      {"o", plan::TensorRole::output, DType::f32, dims, strides}};
  plan.program.internals = {plan::internal_tensor("schedule", DType::i32, {8 + 2 * 4}),
                            plan::internal_tensor("options", DType::i32, {9}),
                            plan::internal_tensor("parts", DType::f32, {2 * kColumns})};
  plan.program.steps = {make_step()};
  plan.kernels = {
      nvrtc::compile_kernel(kSource, device.sm(), "", codegen::KernelKind::general).value()};
  plan.signature = plan::signature_of(plan);
  return plan;
}

class ScheduleOnDevice : public testing::GpuTest {
 protected:
  // A layer: tensors and what executes them.
  struct Layer {
    Layer(const Executable& executable, const cuda::Device& device, int seed)
        : tensors(DeviceTensors::allocate(device, executable.program()).value()),
          binding(executable.bind(tensors.arguments()).value()) {
      EXPECT_TRUE(tensors.fill_random("q", static_cast<std::uint64_t>(seed)).ok());
    }

    void set_lengths(std::int32_t first, std::int32_t second) {
      const std::int32_t lengths[] = {first, second};
      EXPECT_TRUE(tensors.upload_bytes("lengths_kv", std::as_bytes(std::span(lengths))).ok());
    }
    void poison() { EXPECT_TRUE(tensors.fill("o", 0xff).ok()); }
    // Sequences from `count` on are not written.
    void expect(double first, double second, std::int64_t count = kSequences) {
      const io::HostTensor q = tensors.download("q").value(), o = tensors.download("o").value();
      for (std::int64_t i = 0; i < kSequences * kColumns; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const bool is_first = i < kColumns;
        if (i >= count * kColumns) {
          EXPECT_TRUE(std::isnan(o.values[at])) << i;
        } else {
          EXPECT_NEAR(o.values[at], q.values[at] + (is_first ? first : second), 1e-5) << i;
        }
      }
    }

    DeviceTensors tensors;
    Binding binding;
  };
};

TEST_F(ScheduleOnDevice, IsMadeOnceForLayersAndInGraphs) {
  auto runtime = Runtime::open({}).value();
  const plan::Plan plan = make_plan_of_schedule(device());
  ASSERT_TRUE(plan::validate(plan.program).ok()) << plan::validate(plan.program).error().message;
  const Executable executable = Executable::load(runtime, plan).value();
  Layer first(executable, device(), 1), second(executable, device(), 2);
  first.set_lengths(3, 4);
  second.set_lengths(1, 1);
  const cuda::Stream stream = cuda::Stream::create(device()).value();
  void* const on = stream.handle();
  ASSERT_TRUE(second.binding.execute(on).ok() && stream.synchronize().ok());
  second.expect(1, 1);

  Schedule schedule = Schedule::make(executable, {.split_keys = 2, .capacity_keys = 10}).value();
  ASSERT_TRUE(first.binding.use_schedule(&schedule).ok());
  ASSERT_TRUE(second.binding.use_schedule(&schedule).ok());
  const auto run = [&](const SequenceCount& count, void* to) -> Status {
    ATTN_RETURN_IF_ERROR(schedule.build(first.binding, count, to));
    ATTN_RETURN_IF_ERROR(first.binding.execute(to));
    return second.binding.execute(to);
  };
  for (const std::int64_t count : {2, 1, 0}) {
    first.poison();
    second.poison();
    ASSERT_TRUE(run({nullptr, count}, on).ok() && stream.synchronize().ok());
    first.expect(3, 4, count);
    second.expect(3, 4, count);
  }
  EXPECT_EQ(schedule.flags(on).value(), 0u);

  cuda::DeviceBuffer number = cuda::DeviceBuffer::allocate(device(), sizeof(std::int32_t)).value();
  const auto* address = static_cast<const std::int32_t*>(number.data());
  const cuda::Graph graph =
      cuda::Graph::capture(device(), [&](void* to) { return run({address}, to); }).value();
  for (const std::int32_t count : {1, 2}) {
    ASSERT_TRUE(number.upload(std::as_bytes(std::span(&count, 1))).ok());
    first.set_lengths(5, 1 + 5 * count);
    first.poison();
    second.poison();
    ASSERT_TRUE(graph.launch(on).ok() && stream.synchronize().ok());
    second.expect(5, 1 + 5 * count, count);
    const unsigned flags = count == 2 ? plan::kScheduleTooLong : 0;
    EXPECT_EQ(schedule.flags(on).value(), flags);
  }
  const Status found = first.binding.check(on);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message,
            "tensor 'lengths_kv' has 11 at 1, but a sequence has 0 to 5 keys");
  first.set_lengths(5, 0);
  EXPECT_TRUE(first.binding.check(on).ok());
  EXPECT_TRUE(first.binding.check(nullptr).ok());
}

}  // namespace
}  // namespace attn::execute::schedule_tests
