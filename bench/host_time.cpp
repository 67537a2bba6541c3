// Host time of one execute of a plan file against a bare cudnnBackendExecute, in one process:
//   host_time PLAN [--device N] [--cudnn DIR] [--blocks N] [--calls N]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "bench/random_arguments.h"
#include "bench/timing.h"

namespace {

using namespace attn;

Status run(const std::string& path, const execute::LoadOptions& load,
           const bench::HostTimingOptions& options) {
  ATTN_ASSIGN(const plan::Plan plan, plan::load(path));
  ATTN_ASSIGN(auto executable, execute::Executable::load(plan, load));
  ATTN_ASSIGN(auto tensors, bench::random_tensors(executable.device(), plan.program));
  const execute::Arguments arguments = bench::with_unit_params(tensors, plan.program);
  ATTN_ASSIGN(const auto binding, executable.bind(arguments));
  ATTN_ASSIGN(auto bare, bench::BareExecute::create(plan, load, arguments));
  ATTN_ASSIGN(const auto timing, bench::time_on_host(executable, binding, bare, options));
  fmt::print("{}\n", bench::to_json(timing));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Host time of one execute against a bare cudnnBackendExecute");
  std::string path;
  execute::LoadOptions load;
  bench::HostTimingOptions options;
  app.add_option("plan", path, "A .attnplan file")->required();
  app.add_option("--device", load.device, "CUDA device");
  app.add_option("--cudnn", load.cudnn_folder, "Folder of cuDNN");
  app.add_option("--blocks", options.blocks, "Blocks of each kind");
  app.add_option("--calls", options.calls, "Calls a block");
  CLI11_PARSE(app, argc, argv);
  const Status status = run(path, load, options);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.error().to_text());
  return exit_code(status.error().code);
}
