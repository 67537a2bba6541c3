// Breaks down the time from process start to the first result of a plan file:
//   first_result PLAN [--started SECONDS] [--device N] [--cudnn DIR]
// SECONDS is the output of `date +%s.%N` just before the start; without it the time before main is
// not included. Prints milliseconds as one JSON object.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "bench/random_arguments.h"
#include "runtime/cuda/stream.h"
#include "runtime/execute/executable.h"

namespace {

using namespace attn;
using Clock = std::chrono::system_clock;

// Milliseconds since the last stop, by name.
class Stops {
 public:
  explicit Stops(Clock::time_point start) : start_(start), last_(start) {}

  void stop(const char* name) {
    const Clock::time_point now = Clock::now();
    parts_.emplace_back(name, milliseconds(now - last_));
    last_ = now;
  }
  std::string to_json() const {
    std::string text;
    for (const auto& [name, ms] : parts_) text += fmt::format(R"("{}": {:.2f}, )", name, ms);
    return fmt::format(R"({{{}"total": {:.2f}}})", text, milliseconds(last_ - start_));
  }

 private:
  static double milliseconds(Clock::duration duration) {
    return std::chrono::duration<double, std::milli>(duration).count();
  }
  Clock::time_point start_, last_;
  std::vector<std::pair<const char*, double>> parts_;
};

Status run(const std::string& path, const execute::LoadOptions& load, Stops& stops) {
  ATTN_ASSIGN(const plan::Plan plan, plan::load(path, load.direction));
  stops.stop("read the plan");
  ATTN_ASSIGN(const cuda::Device device, cuda::Device::open(load.device));
  stops.stop("driver and context");
  execute::RuntimeOptions options;
  options.device = load.device;
  options.cudnn_folder = load.cudnn_folder;
  ATTN_ASSIGN(auto runtime, execute::Runtime::open(options));
  stops.stop("load cuDNN");
  {
    ATTN_ASSIGN(const auto executable, execute::Executable::load(runtime, plan, load));
    stops.stop("first load, with a handle");
  }
  ATTN_ASSIGN(const auto executable, execute::Executable::load(runtime, plan, load));
  stops.stop("second load");
  ATTN_ASSIGN(auto tensors, execute::DeviceTensors::allocate(device, plan.program));
  for (const plan::TensorInfo& info : plan.program.tensors) {
    ATTN_RETURN_IF_ERROR(tensors.fill(info.name, 0));
  }
  stops.stop("tensors");
  ATTN_ASSIGN(auto binding, executable.bind(bench::with_unit_params(tensors, plan.program)));
  stops.stop("bind, with a handle");
  ATTN_ASSIGN(const auto stream, cuda::Stream::create(device));
  ATTN_RETURN_IF_ERROR(binding.execute(stream.handle()));
  stops.stop("first execute");
  ATTN_RETURN_IF_ERROR(stream.synchronize());
  stops.stop("its result");
  ATTN_RETURN_IF_ERROR(binding.execute(stream.handle()));
  stops.stop("second execute");
  fmt::print("{}\n", stops.to_json());
  return {};
}

Clock::time_point at(double seconds) {
  return Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

}  // namespace

int main(int argc, char** argv) {
  const Clock::time_point begun = Clock::now();
  CLI::App app("Breaks down the time until the first result of a plan file");
  std::string path;
  double started = 0;
  execute::LoadOptions load;
  app.add_option("plan", path, "A .attnplan file")->required();
  app.add_option("--started", started, "Start time of the process: date +%s.%N");
  app.add_option("--device", load.device, "CUDA device");
  app.add_option("--cudnn", load.cudnn_folder, "Folder of cuDNN");
  CLI11_PARSE(app, argc, argv);
  Stops stops(started > 0 ? at(started) : begun);
  stops.stop("start the process");
  const Status status = run(path, load, stops);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.error().to_text());
  return exit_code(status.error().code);
}
