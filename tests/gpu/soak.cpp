// Soak test: many threads on shared executables, with every result compared:
//   soak PLAN... [--seconds 180] [--threads 8] [--devices 1] [--loaded N] [--cudnn DIR]
// Thread i uses device i % devices, with its own stream and tensors, and cycles through the plans:
// executes with changing addresses, CUDA graphs and all kinds of workspaces, and rebinds
// executables from the device's cache (of N executables, fewer than there are plans). Prints the
// memory of process and devices. The exit code is 5 if a result differs from the first one of its
// plan, or memory grew.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/execute/cuda_graph.h"
#include "runtime/execute/device_tensors.h"
#include "runtime/execute/executable_cache.h"

namespace {

using namespace attn;
using Clock = std::chrono::steady_clock;

constexpr std::byte kPoison{0xff};  // initial bytes of outputs: NaN in every float

struct Options {
  std::vector<std::string> plans;
  std::string cudnn_folder;
  int seconds = 180;
  int threads = 8;
  int devices = 1;
  std::size_t loaded = 2;
};

// One device, and the executables shared by its threads.
struct Site {
  std::shared_ptr<execute::Runtime> runtime;
  std::unique_ptr<execute::ExecutableCache> cache;
};

Result<Site> open_site(int device, const Options& options) {
  execute::RuntimeOptions how;
  how.device = device;
  how.cudnn_folder = options.cudnn_folder;
  Site site;
  ATTN_ASSIGN(site.runtime, execute::Runtime::open(how));
  cache::MemoryOptions limits;
  limits.values.entries = options.loaded;
  site.cache = std::make_unique<execute::ExecutableCache>(site.runtime, limits);
  return site;
}

// Expected results by plan: the bytes of all outputs.
class Expected {
 public:
  explicit Expected(std::size_t plans) : bytes_(plans) {}

  // The first result of a plan becomes the expected one, unless nothing was written. Errors:
  // mismatch.
  Status compare(std::size_t plan, std::vector<std::byte> bytes) {
    if (std::ranges::all_of(bytes, [](std::byte byte) { return byte == kPoison; })) {
      return Status(ErrorCode::mismatch, fmt::format("plan {}: nothing was written", plan));
    }
    const std::lock_guard lock(mutex_);
    if (bytes_[plan].empty())
      bytes_[plan] = std::move(bytes);
    else if (bytes != bytes_[plan]) {
      return Status(ErrorCode::mismatch, fmt::format("plan {}: a different result", plan));
    }
    return {};
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<std::byte>> bytes_;
};

// Two sets of tensors of one plan, with the same inputs in every thread.
struct Tensors {
  execute::DeviceTensors first, second;

  static Result<Tensors> create(const cuda::Device& device, const plan::Program& program) {
    ATTN_ASSIGN(auto first, execute::DeviceTensors::allocate(device, program));
    ATTN_ASSIGN(auto second, execute::DeviceTensors::allocate(device, program));
    Tensors tensors{std::move(first), std::move(second)};
    for (execute::DeviceTensors* set : {&tensors.first, &tensors.second}) {
      for (const plan::TensorInfo& info : program.tensors) {
        ATTN_RETURN_IF_ERROR(set->fill(info.name, 0));
        if (info.is_output() || !is_float(info.dtype)) continue;
        ATTN_RETURN_IF_ERROR(set->fill_random(info.name, 1));
      }
    }
    return tensors;
  }
};

Status poison(execute::DeviceTensors& tensors, const plan::Program& program) {
  for (const plan::TensorInfo& info : program.tensors) {
    if (info.is_output())
      ATTN_RETURN_IF_ERROR(tensors.fill(info.name, static_cast<std::uint8_t>(kPoison)));
  }
  return {};
}

Result<std::vector<std::byte>> results(const execute::DeviceTensors& tensors,
                                       const plan::Program& program) {
  std::vector<std::byte> all;
  for (const plan::TensorInfo& info : program.tensors) {
    if (!info.is_output()) continue;
    ATTN_ASSIGN(const auto bytes, tensors.download_bytes(info.name));
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

execute::Arguments arguments_of(const execute::DeviceTensors& tensors,
                                const plan::Program& program) {
  execute::Arguments arguments = tensors.arguments();
  for (const plan::ParamInfo& param : program.params) arguments.scalar(param.name, param.dtype, 1);
  return arguments;
}

struct Shared {
  Shared(const Options& its_options, const std::vector<plan::Plan>& its_plans)
      : options(its_options), plans(its_plans), expected(its_plans.size()) {}

  const Options& options;
  const std::vector<plan::Plan>& plans;
  Expected expected;
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> executes = 0;
  std::mutex mutex;
  Status failure{};
};

class Worker {
 public:
  Worker(int number, Site& site, Shared& shared) : number_(number), site_(site), shared_(shared) {}

  Status run() {
    const cuda::Device& device = site_.runtime->device();
    ATTN_ASSIGN(const auto stream, cuda::Stream::create(device));
    std::vector<Tensors> tensors;
    for (const plan::Plan& plan : shared_.plans) {
      ATTN_ASSIGN(auto made, Tensors::create(device, plan.program));
      tensors.push_back(std::move(made));
    }
    for (int round = number_; !shared_.stop; ++round) {
      const std::size_t plan = static_cast<std::size_t>(round) % shared_.plans.size();
      ATTN_RETURN_IF_ERROR(work(plan, tensors[plan], round, stream));
    }
    return {};
  }

 private:
  static execute::Workspace workspace(int round) {
    return round % 3 == 0 ? execute::Workspace::stream_ordered() : execute::Workspace::owned();
  }

  // Executes one binding, alternating between two sets of tensors, then the same as a graph.
  Status work(std::size_t index, Tensors& tensors, int round, const cuda::Stream& stream) {
    const plan::Plan& plan = shared_.plans[index];
    ATTN_ASSIGN(const auto executable, site_.cache->get(plan));
    ATTN_ASSIGN(auto binding,
                executable.bind(arguments_of(tensors.first, plan.program), workspace(round)));
    const auto execute = [&] { return binding.execute(stream.handle()); };
    ATTN_RETURN_IF_ERROR(many(index, tensors, stream, binding, execute));
    if (round % 4 != 1) return {};
    ATTN_ASSIGN(auto graph, execute::CudaGraph::capture(std::move(binding)));
    const auto launch = [&] { return graph.launch(stream.handle()); };
    return many(index, tensors, stream, graph, launch);
  }

  template <typename Subject, typename Call>
  Status many(std::size_t index, Tensors& tensors, const cuda::Stream& stream, Subject& subject,
              const Call& call) {
    const plan::Program& program = shared_.plans[index].program;
    constexpr int kTimes = 20, kCalls = 10;
    for (int i = 0; i < kTimes && !shared_.stop; ++i) {
      execute::DeviceTensors& set = i % 2 == 0 ? tensors.first : tensors.second;
      ATTN_RETURN_IF_ERROR(poison(set, program));
      ATTN_RETURN_IF_ERROR(subject.set_addresses(execute::addresses_of(program, set.arguments())));
      for (int n = 0; n < kCalls; ++n) ATTN_RETURN_IF_ERROR(call());
      ATTN_RETURN_IF_ERROR(stream.synchronize());
      ATTN_ASSIGN(auto bytes, results(set, program));
      ATTN_RETURN_IF_ERROR(shared_.expected.compare(index, std::move(bytes)));
      shared_.executes += kCalls;
    }
    return {};
  }

  int number_;
  Site& site_;
  Shared& shared_;
};

// Resident memory of this process, in bytes.
std::size_t resident_bytes() {
  std::size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

struct Memory {
  double host_mib = 0;
  std::vector<double> free_mib;  // of each device
};

Result<Memory> memory_of(const std::vector<Site>& sites) {
  constexpr double kMib = 1 << 20;
  Memory memory{static_cast<double>(resident_bytes()) / kMib, {}};
  for (const Site& site : sites) {
    ATTN_ASSIGN(const std::size_t bytes, site.runtime->device().free_bytes());
    memory.free_mib.push_back(static_cast<double>(bytes) / kMib);
  }
  return memory;
}

void print(double seconds, const Memory& memory, const Shared& shared) {
  fmt::print("{:6.1f} s  {:10} executes  {:8.1f} MiB resident", seconds, shared.executes.load(),
             memory.host_mib);
  for (const double free : memory.free_mib) fmt::print("  {:10.1f} MiB free", free);
  fmt::print("\n");
  std::fflush(stdout);
}

// Compares memory after a quarter of the time, when everything has been used, with memory at the
// end.
Status check_growth(const Memory& early, const Memory& late) {
  constexpr double kAllowed = 64;  // MiB
  bool grew = late.host_mib > early.host_mib + kAllowed;
  for (std::size_t i = 0; i < early.free_mib.size(); ++i) {
    grew = grew || late.free_mib[i] < early.free_mib[i] - kAllowed;
  }
  return grew ? Status(ErrorCode::mismatch, "memory grew") : Status();
}

Status watch(const std::vector<Site>& sites, Shared& shared) {
  const auto begin = Clock::now();
  Memory early, late;
  const int steps = 20;
  for (int step = 1; step <= steps && !shared.stop; ++step) {
    std::this_thread::sleep_until(begin +
                                  std::chrono::seconds(shared.options.seconds) * step / steps);
    ATTN_ASSIGN(late, memory_of(sites));
    if (step == steps / 4) early = late;
    const std::chrono::duration<double> taken = Clock::now() - begin;
    print(taken.count(), late, shared);
  }
  return check_growth(early, late);
}

Status run(const Options& options) {
  std::vector<plan::Plan> plans;
  for (const std::string& path : options.plans) {
    ATTN_ASSIGN(plan::Plan plan, plan::load(path));  // the forward: a backward is not deterministic
    plans.push_back(std::move(plan));
  }
  std::vector<Site> sites;
  for (int device = 0; device < options.devices; ++device) {
    ATTN_ASSIGN(Site site, open_site(device, options));
    sites.push_back(std::move(site));
  }
  Shared shared(options, plans);
  std::vector<std::thread> threads;
  for (int i = 0; i < options.threads; ++i) {
    threads.emplace_back([&, i] {
      const Status status =
          Worker(i, sites[static_cast<std::size_t>(i % options.devices)], shared).run();
      if (status.ok()) return;
      const std::lock_guard lock(shared.mutex);
      shared.failure = status;
      shared.stop = true;
    });
  }
  const Status watched = watch(sites, shared);
  shared.stop = true;
  for (std::thread& thread : threads) thread.join();
  for (const Site& site : sites) {
    const cache::Counts counts = site.cache->counts();
    const auto cudnn = site.runtime->cudnn();
    fmt::print("device {}: {} hits, {} loads, {} evictions, {} waits, {} handles\n",
               site.runtime->device().ordinal(), counts[cache::Counter::hit],
               counts[cache::Counter::load], counts[cache::Counter::evict],
               counts[cache::Counter::wait], cudnn.ok() ? (*cudnn)->executing.size() : 0);
  }
  ATTN_RETURN_IF_ERROR(shared.failure);
  return watched;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs many threads on shared executables and compares every result");
  Options options;
  app.add_option("plans", options.plans, ".attnplan files")->required();
  app.add_option("--seconds", options.seconds, "Duration");
  app.add_option("--threads", options.threads, "Number of threads");
  app.add_option("--devices", options.devices, "Number of devices to use");
  app.add_option("--loaded", options.loaded, "Size of each device's cache of executables");
  app.add_option("--cudnn", options.cudnn_folder, "Folder of cuDNN");
  CLI11_PARSE(app, argc, argv);
  const Status status = run(options);
  fmt::print("{}\n", status.ok() ? "all results were equal, and memory did not grow"
                                 : status.error().to_text());
  return status.ok() ? 0 : exit_code(status.error().code);
}
