// Host time of one execute of a plan file, for each way to call it, in one process:
//   host_time PLAN [--device N] [--cudnn DIR] [--blocks N] [--calls N]
// Beside them the time of a launch of an empty kernel, the driver's part, and how many launches an
// execute has.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/api_execute.h"
#include "bench/kernel_ways.h"
#include "bench/random_arguments.h"
#include "bench/timing.h"
#include "runtime/execute/cuda_graph.h"

namespace {

using namespace attn;

// Sets of tensor addresses for the same plan, to switch between.
constexpr std::size_t kKeptSets = 4;
constexpr std::size_t kManySets = 64;  // more than a binding caches

struct Sets {
  std::vector<execute::DeviceTensors> memory;
  std::vector<std::vector<void*>> addresses;

  static Result<Sets> create(const execute::Executable& executable) {
    Sets sets;
    for (std::size_t i = 0; i < kManySets; ++i) {
      ATTN_ASSIGN(auto tensors, bench::random_tensors(executable.device(), executable.program()));
      sets.addresses.push_back(execute::addresses_of(executable.program(), tensors.arguments()));
      sets.memory.push_back(std::move(tensors));
    }
    return sets;
  }
};

// Executes with a different set at every call.
class Changing {
 public:
  Changing(execute::Binding& binding, const Sets& sets, std::size_t count, execute::Check check)
      : binding_(binding), sets_(sets), count_(count), check_(check) {}

  Status operator()(void* stream) {
    next_ = (next_ + 1) % count_;
    ATTN_RETURN_IF_ERROR(binding_.set_addresses(sets_.addresses[next_], check_));
    return binding_.execute(stream);
  }

 private:
  execute::Binding& binding_;
  const Sets& sets_;
  std::size_t count_;
  execute::Check check_;
  std::size_t next_ = 0;
};

using Workspace = execute::Workspace;

// Bindings and graphs of the ways to call.
struct Subjects {
  execute::Binding fixed;
  execute::Binding keeping;
  execute::Binding checking;
  execute::Binding trusting;
  execute::Binding pooled;
  execute::CudaGraph graph;
  execute::CudaGraph changing_graph;

  static Result<Subjects> create(const execute::Executable& executable,
                                 const execute::Arguments& arguments) {
    ATTN_ASSIGN(auto fixed, executable.bind(arguments));
    ATTN_ASSIGN(auto keeping, executable.bind(arguments));
    ATTN_ASSIGN(auto checking, executable.bind(arguments));
    ATTN_ASSIGN(auto trusting, executable.bind(arguments));
    ATTN_ASSIGN(auto pooled, executable.bind(arguments, Workspace::stream_ordered()));
    ATTN_ASSIGN(auto captured, executable.bind(arguments));
    ATTN_ASSIGN(auto graph, execute::CudaGraph::capture(std::move(captured)));
    ATTN_ASSIGN(auto recaptured, executable.bind(arguments));
    ATTN_ASSIGN(auto changing, execute::CudaGraph::capture(std::move(recaptured)));
    return Subjects{std::move(fixed),  std::move(keeping), std::move(checking), std::move(trusting),
                    std::move(pooled), std::move(graph),   std::move(changing)};
  }
};

// Ways that only plans of attnc's own kernels have.
struct KernelSubjects {
  bench::EmptyLaunch empty;
  execute::Binding moving;
  bench::Scheduled scheduled;

  static Result<KernelSubjects> create(const execute::Executable& executable,
                                       const execute::Arguments& arguments) {
    ATTN_ASSIGN(auto empty, bench::EmptyLaunch::create(executable.device()));
    ATTN_ASSIGN(auto moving, executable.bind(arguments));
    ATTN_ASSIGN(auto scheduled, bench::Scheduled::create(executable, arguments));
    return KernelSubjects{std::move(empty), std::move(moving), std::move(scheduled)};
  }

  void add(const Sets& sets, std::vector<bench::Way>& ways) {
    constexpr std::size_t kQ = 0;  // the first tensor of every program
    ways.push_back({"empty_launch", empty});
    ways.push_back({"moved_q", bench::Moving(moving, sets.addresses, kQ)});
    if (!scheduled.binding) return;
    ways.push_back({"schedule_build", [this](void* stream) {
                      return scheduled.schedule->build(*scheduled.binding, {}, stream);
                    }});
    ways.push_back(
        {"scheduled", [this](void* stream) { return scheduled.binding->execute(stream); }});
    ways.push_back({"scheduled_moved_q", bench::Moving(*scheduled.binding, sets.addresses, kQ)});
  }
};

std::vector<bench::Way> ways_of(Subjects& subjects, const Sets& sets,
                                std::optional<bench::BareExecute>& bare, bench::ApiExecute& api) {
  using execute::Check;
  std::vector<bench::Way> ways;
  if (bare) ways = bench::bare_and_ours(*bare, subjects.fixed);
  if (!bare)
    ways.push_back({"execute", [&](void* stream) { return subjects.fixed.execute(stream); }});
  ways.push_back({"attn_h", [&](void* stream) { return api.execute(stream); }});
  ways.push_back({"kept_sets", Changing(subjects.keeping, sets, kKeptSets, Check::yes)});
  ways.push_back({"new_sets", Changing(subjects.checking, sets, kManySets, Check::yes)});
  ways.push_back({"unchecked_sets", Changing(subjects.trusting, sets, kManySets, Check::no)});
  ways.push_back({"stream_ordered", [&](void* stream) { return subjects.pooled.execute(stream); }});
  ways.push_back({"graph", [&](void* stream) { return subjects.graph.launch(stream); }});
  ways.push_back({"graph_new_sets", [&, next = std::size_t{0}](void* stream) mutable {
                    next = (next + 1) % kManySets;
                    const Status set =
                        subjects.changing_graph.set_addresses(sets.addresses[next], Check::no);
                    return set.ok() ? subjects.changing_graph.launch(stream) : set;
                  }});
  return ways;
}

nlohmann::ordered_json json_of(const bench::Enqueued& enqueued) {
  return {{"launches", enqueued.launches}, {"fills", enqueued.fills}, {"cudnn", enqueued.of_cudnn}};
}

Status run(const std::string& path, const execute::LoadOptions& load,
           const bench::HostTimingOptions& options) {
  ATTN_ASSIGN(const plan::Plan plan, plan::load(path, load.direction));
  ATTN_ASSIGN(const auto executable, execute::Executable::load(plan, load));
  ATTN_ASSIGN(const Sets sets, Sets::create(executable));
  const execute::Arguments arguments = bench::with_unit_params(sets.memory[0], plan.program);
  std::optional<bench::BareExecute> bare;
  if (!plan.compiled.empty()) {
    ATTN_ASSIGN(bare, bench::BareExecute::create(plan, load, arguments));
  }
  ATTN_ASSIGN(auto api, bench::ApiExecute::create(path, load.device, load.cudnn_folder, arguments));
  ATTN_ASSIGN(auto subjects, Subjects::create(executable, arguments));
  ATTN_ASSIGN(auto kernels, KernelSubjects::create(executable, arguments));
  std::vector<bench::Way> ways = ways_of(subjects, sets, bare, api);
  kernels.add(sets, ways);
  ATTN_ASSIGN(const auto timing, bench::time_on_host(executable.device(), ways, options));
  nlohmann::ordered_json json = bench::json_of(timing);
  json["enqueued"] = json_of(bench::enqueued(plan.program, false));
  if (kernels.scheduled.binding) json["scheduled"] = json_of(bench::enqueued(plan.program, true));
  fmt::print("{}\n", json.dump());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Host time of one execute, compared with a bare cudnnBackendExecute");
  std::string path;
  execute::LoadOptions load;
  bench::HostTimingOptions options;
  app.add_option("plan", path, "A .attnplan file")->required();
  app.add_option("--device", load.device, "CUDA device");
  app.add_option("--cudnn", load.cudnn_folder, "Folder of cuDNN");
  app.add_option("--blocks", options.blocks, "Blocks of each kind");
  app.add_option("--calls", options.calls, "Calls per block");
  CLI11_PARSE(app, argc, argv);
  const Status status = run(path, load, options);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.error().to_text());
  return exit_code(status.error().code);
}
