// Many threads execute. Every result is checked, and nothing may be alive at the end.
#include <cuda.h>
#include <cudnn_graph.h>

#include <array>
#include <atomic>
#include <mutex>
#include <optional>

#include "tests/stress/stress.h"

namespace attn::stress {
namespace {

using execute::Binding;
using execute::CudaGraph;
using execute::Executable;
using execute::Runtime;
using execute::Workspace;
using standin::Case;
using standin::make_plan;

plan::Plan whole_plan(int number = 0) {
  return make_plan({.number = number,
                    .steps = 2,
                    .params = 2,
                    .derives_once = true,
                    .derives_each = true,
                    .checks = true});
}

Workspace workspace_of(int kind) {
  return kind == 0 ? Workspace::stream_ordered() : Workspace::owned();
}

// One thread of an application: two sets of tensors, a stream, a binding and a graph.
class Worker {
 public:
  Worker(const Executable& executable, const plan::Plan& plan, int seed)
      : executable_(executable),
        random_(seed),
        stream_(must(cuda::Stream::create(executable.device()))),
        cases_{must(Case::make(executable.device(), plan, 2 * seed)),
               must(Case::make(executable.device(), plan, 2 * seed + 1))} {
    bind();
    set_to(1);
  }

  void work(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      switch (random_.below(8)) {
        case 0: bind(); break;
        case 1: set_param(); break;
        case 2:
        case 3: set_addresses(); break;
        case 4: launch(); break;
        default: execute(); break;
      }
    }
  }

 private:
  Case& on() { return cases_[current_]; }

  void bind() {
    graph_.reset();
    binding_ = must(executable_.bind(on().arguments(), workspace_of(random_.below(2))));
  }
  // Sets the params in both cases, the binding and the graph.
  void set_to(double value) {
    for (const char* name : {"p0", "p1"}) {
      for (Case& each : cases_) each.set_param(name, value);
      ASSERT_TRUE(binding_->set_param(name, value).ok());
      ASSERT_TRUE(!graph_ || graph_->set_param(name, value).ok());
    }
  }
  void set_param() { set_to(random_.below(100)); }

  void set_addresses() {
    current_ = 1 - current_;
    ASSERT_TRUE(binding_->set_addresses(on().addresses()).ok());
    ASSERT_TRUE(!graph_ || graph_->set_addresses(on().addresses()).ok());
    execute();
  }

  void execute() {
    ASSERT_TRUE(on().poison().ok());
    const Status done = binding_->execute(stream_.handle());
    ASSERT_TRUE(done.ok()) << done.error().to_text();
    ASSERT_TRUE(must(on().is_right()));
  }

  void launch() {
    if (!graph_) {
      graph_ = must(CudaGraph::capture(must(executable_.bind(on().arguments()))));
    }
    ASSERT_TRUE(on().poison().ok());
    ASSERT_TRUE(graph_->launch(stream_.handle()).ok());
    ASSERT_TRUE(must(on().is_right()));
  }

  Executable executable_;
  Random random_;
  cuda::Stream stream_;
  std::array<Case, 2> cases_;
  std::size_t current_ = 0;
  std::optional<Binding> binding_;
  std::optional<CudaGraph> graph_;
};

class Execute : public execute::OnStandins {};

TEST_F(Execute, ManyThreadsShareAnExecutable) {
  const plan::Plan plan = whole_plan();
  for (const int handles : {2, 16}) {
    const auto executable = must(Executable::load(must(standin::open_runtime(0, handles)), plan));
    in_threads(kThreads, [&](int thread) { Worker(executable, plan, thread).work(times(800)); });
  }
}

TEST_F(Execute, ManyThreadsOnTwoDevices) {
  const plan::Plan plan = whole_plan();
  const std::array<Executable, 2> executables = {
      must(Executable::load(must(standin::open_runtime(0)), plan)),
      must(Executable::load(must(standin::open_runtime(1)), plan))};
  in_threads(kThreads, [&](int thread) {
    for (int round = 0; round < times(30); ++round) {
      const auto device = static_cast<std::size_t>(thread + round) % 2;
      Worker(executables[device], plan, thread).work(20);
    }
  });
}

// Executables and runtimes are replaced while other threads use them.
TEST_F(Execute, ExecutablesGoWhileOthersExecute) {
  std::mutex mutex;
  std::array<std::optional<Executable>, 3> shared;
  std::array<plan::Plan, 3> plans;
  for (std::size_t i = 0; i < plans.size(); ++i) plans[i] = whole_plan(static_cast<int>(i));
  in_threads(kThreads, [&](int thread) {
    Random random(thread);
    for (int round = 0; round < times(100); ++round) {
      const auto place = static_cast<std::size_t>(random.below(3));
      std::optional<Executable> executable;
      {
        const std::lock_guard lock(mutex);
        executable = shared[place];
      }
      if (!executable || random.below(3) == 0) {
        executable =
            must(Executable::load(must(standin::open_runtime(random.below(2))), plans[place]));
        std::optional<Executable> old = executable;
        const std::lock_guard lock(mutex);
        shared[place].swap(old);
      }
      Worker(*executable, plans[place], thread).work(5);
    }
  });
}

// cuDNN and the driver fail now and then, in any thread.
TEST_F(Execute, FailuresStayWhereTheyAre) {
  const plan::Plan plan = whole_plan();
  const auto runtime = must(standin::open_runtime());
  const auto executable = must(Executable::load(runtime, plan));
  Random random(1);
  for (int i = 0; i < times(60); ++i) {
    for (const char* function : {"cudnnBackendExecute", "cudnnBackendFinalize", "cudnnSetStream",
                                 "cudnnBackendCreateDescriptor"}) {
      script_cudnn(
          standin::fail_nth(function, 1 + random.below(2000), CUDNN_STATUS_INTERNAL_ERROR));
    }
    for (const char* function : {"cuLaunchKernelEx", "cuMemAlloc", "cuMemAllocAsync",
                                 "cuModuleLoadData", "cuPointerGetAttributes"}) {
      script_cuda(standin::fail_nth(function, 1 + random.below(500), CUDA_ERROR_OUT_OF_MEMORY));
    }
  }
  std::atomic<int> failed{0}, right{0};
  in_threads(kThreads, [&](int thread) {
    for (int round = 0; round < times(100); ++round) {
      const auto lived = [&]() -> Status {
        ATTN_ASSIGN(const Executable another, Executable::load(runtime, plan));
        ATTN_ASSIGN(Case on, Case::make(runtime->device(), plan, thread));
        ATTN_ASSIGN(
            Binding binding,
            (round % 2 == 0 ? another : executable).bind(on.arguments(), workspace_of(round % 3)));
        ATTN_RETURN_IF_ERROR(binding.execute(nullptr));
        EXPECT_TRUE(must(on.is_right()));
        ++right;
        return {};
      }();
      if (lived.ok()) continue;
      ++failed;
      const ErrorCode code = lived.error().code;
      EXPECT_TRUE(code == ErrorCode::cuda || code == ErrorCode::cudnn) << lived.error().to_text();
    }
  });
  EXPECT_GT(failed, 0);
  EXPECT_GT(right, 0);
}

}  // namespace
}  // namespace attn::stress
