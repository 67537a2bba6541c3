#include <fmt/format.h>

#include "runtime/cuda/device.h"
#include "runtime/cudnn/library.h"
#include "tools/command.h"
#include "tools/report.h"

namespace attn::tools {
namespace version_command {
namespace {

struct Options {
  std::string cudnn_folder;
  Format format = Format::text;
};

Json cudnn_json(const std::string& folder) {
  const auto library = cudnn::Library::load(folder);
  if (!library.ok()) return {{"found", false}, {"why", library.error().message}};
  return {{"found", true},
          {"version", cudnn::version_text((*library)->version())},
          {"path", (*library)->path()}};
}

Json device_json() {
  const Result<int> count = cuda::device_count();
  if (!count.ok()) return {{"found", false}, {"why", count.error().message}};
  if (*count == 0) return {{"found", false}, {"why", "the driver reports no device"}};
  const Result<cuda::Device> device = cuda::Device::open(0);
  if (!device.ok()) return {{"found", false}, {"why", device.error().message}};
  return {{"found", true}, {"count", *count}, {"name", device->name()}, {"sm", device->sm()}};
}

int run(const Options& options) {
  const Json cudnn = cudnn_json(options.cudnn_folder);
  const Json device = device_json();
  if (options.format == Format::json) {
    print_json({{"attnc", ATTN_VERSION}, {"cudnn", cudnn}, {"device", device}});
    return kOk;
  }
  fmt::print("attnc   {}\n", ATTN_VERSION);
  if (cudnn["found"]) {
    fmt::print("cuDNN   {} ({})\n", cudnn.value("version", ""), cudnn.value("path", ""));
  } else {
    fmt::print("cuDNN   not found: {}\n", cudnn.value("why", ""));
  }
  if (device["found"]) {
    fmt::print("device  {} (sm_{}), {} in total\n", device.value("name", ""), device.value("sm", 0),
               device.value("count", 0));
  } else {
    fmt::print("device  not found: {}\n", device.value("why", ""));
  }
  return kOk;
}

}  // namespace
}  // namespace version_command

void add_version(CLI::App& app, Action& action) {
  using namespace version_command;
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("version", "Print the versions of attnc and cuDNN, and the local GPU");
  add_cudnn(*command, options->cudnn_folder);
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
