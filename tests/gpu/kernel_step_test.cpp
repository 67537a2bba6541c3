// A kernel step with everything that one may have: a cluster, dynamic shared memory, a tensor map,
// a counter and scalars. For compute capability 9.0 and newer.
#include <cmath>

#include "compiler/nvrtc/nvrtc.h"
#include "runtime/execute/cuda_graph.h"
#include "runtime/plan/internal_tensor.h"
#include "tests/gpu/gpu_test.h"

namespace attn::execute {
namespace {

constexpr std::int64_t kRows = 43, kColumns = 32, kTile = 8, kBlocks = 6;  // the last tile is short
constexpr std::int64_t kSharedBytes = 100 << 10;

// Block b sums rows 8 b .. 8 b + 7, a warp each, and adds its rank in the cluster.
constexpr const char* kSource = R"(
struct alignas(64) Map { char bytes[128]; };
extern "C" __global__ void sum_rows(const __grid_constant__ Map map, float* o, float* blocks,
                                    int* counter, float scale, int rows) {
  extern __shared__ __align__(128) float tile[];
  __shared__ __align__(8) unsigned long long barrier;
  const unsigned at = (unsigned)__cvta_generic_to_shared(&barrier);
  const unsigned to = (unsigned)__cvta_generic_to_shared(tile + 24576);  // beyond 48 KiB
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(1024));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(0), "r"((int)blockIdx.x * 8),
        "r"(at) : "memory");
  }
  __syncthreads();
  unsigned done = 0;
  while (!done) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"
        " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at) : "memory");
  }
  const int row = threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = tile[24576 + row * 32 + lane];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const int whole = blockIdx.x * 8 + row;
  if (lane == 0 && whole < rows) o[whole] = scale * sum + rank;
  if (threadIdx.x == 0 && atomicAdd(counter, 1) == (int)gridDim.x - 1) *blocks = gridDim.x;
}
)";

plan::Plan make_plan(const cuda::Device& device) {
  plan::Plan plan;
  plan.target = {device.name(), device.sm(), ""};
  plan.program.tensors = {
      {"q", plan::TensorRole::query, DType::f32, {1, 1, kRows, kColumns}, {1376, 1376, 32, 1}},
      {"o", plan::TensorRole::output, DType::f32, {1, 1, kRows, 1}, {43, 43, 1, 1}},
      {"blocks", plan::TensorRole::stats, DType::f32, {1, 1, 1}, {1, 1, 1}}};
  plan.program.params = {{"scale", DType::f32}};
  plan.program.internals = {plan::internal_tensor("counter", DType::i32, {1})};
  const plan::TensorMapArgument map{
      .tensor = {"q"}, .dims = {kColumns, kRows}, .strides = {kColumns}, .box = {kColumns, kTile}};
  plan::KernelStep step;
  step.outputs = {"o", "blocks"};
  step.zeroed = {"counter"};
  step.source = kSource;
  step.launches = {{.kernel = "sum_rows",
                    .grid = {kBlocks, 1, 1},
                    .block = {32 * kTile, 1, 1},
                    .cluster = {2, 1, 1},
                    .shared_bytes = kSharedBytes,
                    .arguments = {map, plan::TensorOperand{"o"}, plan::TensorOperand{"blocks"},
                                  plan::TensorOperand{"counter"}, plan::ParamOperand{"scale"},
                                  plan::ConstantOperand{DType::i32, kRows}}}};
  plan.program.steps = {step};
  plan.kernels = {
      nvrtc::compile_kernel(kSource, device.sm(), "", codegen::KernelKind::general).value()};
  plan.signature = plan::signature_of(plan);
  return plan;
}

class KernelStepOnDevice : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device().sm() < 90) GTEST_SKIP() << "SKIPPED: needs compute capability 9.0";
  }

  // What row r holds after an execute.
  static double wanted(const io::HostTensor& q, std::int64_t row, double scale) {
    double sum = 0;
    for (std::int64_t c = 0; c < kColumns; ++c) {
      sum += q.values[static_cast<std::size_t>(row * kColumns + c)];
    }
    return scale * sum + static_cast<double>(row / kTile % 2);
  }

  static void expect_right(const DeviceTensors& tensors, double scale) {
    const io::HostTensor q = tensors.download("q").value(), o = tensors.download("o").value();
    for (std::int64_t row = 0; row < kRows; ++row) {
      EXPECT_NEAR(o.values[static_cast<std::size_t>(row)], wanted(q, row, scale), 1e-4) << row;
    }
    EXPECT_EQ(tensors.download("blocks").value().values[0], kBlocks);
  }
};

TEST_F(KernelStepOnDevice, RunsAgainAndInGraphs) {
  auto runtime = Runtime::open({}).value();
  const plan::Plan plan = make_plan(device());
  ASSERT_TRUE(plan::validate(plan.program).ok()) << plan::validate(plan.program).error().message;
  const Executable executable = Executable::load(runtime, plan).value();
  DeviceTensors tensors = DeviceTensors::allocate(device(), plan.program).value();
  ASSERT_TRUE(tensors.fill_random("q", 7).ok());
  Binding binding = executable.bind(tensors.arguments().scalar("scale", 0.5)).value();
  const cuda::Stream stream = cuda::Stream::create(device()).value();
  Binding captured = executable.bind(tensors.arguments().scalar("scale", 0.5)).value();
  CudaGraph graph = CudaGraph::capture(std::move(captured)).value();
  const auto run = [&](const auto& enqueue) {
    ASSERT_TRUE(tensors.fill("o", 0xff).ok() && tensors.fill("blocks", 0xff).ok());
    ASSERT_TRUE(enqueue().ok());
    ASSERT_TRUE(stream.synchronize().ok());
    expect_right(tensors, 0.5);
  };
  for (int i = 0; i < 3; ++i) {
    run([&] { return binding.execute(stream.handle()); });
    run([&] { return graph.launch(stream.handle()); });
  }
}

}  // namespace
}  // namespace attn::execute
