#include <fmt/format.h>

#include "runtime/io/file.h"
#include "runtime/plan/device_properties.h"
#include "runtime/targets/targets.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/report.h"
#include "tools/table.h"
#include "tools/target_option.h"

namespace attn::tools {
namespace target_command {
namespace {

struct Options {
  std::string name = "native";
  std::string output;
  std::string cudnn_folder;
  Format format = Format::text;
};

// Other names of targets: "h20: h100, but 78 SMs".
struct Aliases {
  Json json = Json::array();
  std::string text;
};

Aliases all_aliases() {
  Aliases all;
  Table table({{"alias"}, {"target"}, {"differences"}});
  for (const targets::Alias& alias : targets::aliases()) {
    table.add({std::string(alias.name), std::string(alias.target), std::string(alias.differs)});
    all.json.push_back(
        {{"name", alias.name}, {"target", alias.target}, {"differs", alias.differs}});
  }
  all.text = table.to_text("", output_paint());
  return all;
}

int list(const Options& options) {
  Json targets = Json::array();
  Table table({{"name"}, {"SM", Align::right}, {"device"}, {"source"}});
  for (const std::string& name : targets::target_names()) {
    const Result<plan::Target> target = targets::find_target(name);
    if (!target.ok()) return report(target.error(), options.format);
    const std::string device = plan::DeviceProperties(target->device_json).text("deviceName");
    const std::string provenance(targets::provenance(name));
    table.add({name, fmt::format("{}", target->sm), device, provenance});
    targets.push_back(
        {{"name", name}, {"sm", target->sm}, {"device", device}, {"provenance", provenance}});
  }
  if (options.format == Format::json) {
    print_json({{"targets", targets}, {"aliases", all_aliases().json}});
  } else {
    fmt::print("{}\n{}", table.to_text("", output_paint()), all_aliases().text);
  }
  return kOk;
}

// Prints the JSON that --target FILE.json reads; for `show` and `dump`.
int print_properties(const Options& options) {
  const Result<plan::Target> target = options.name == "native"
                                          ? native_target(options.cudnn_folder)
                                          : find_target(options.name, options.cudnn_folder);
  if (!target.ok()) return report(target.error(), options.format);
  const std::string json = plan::DeviceProperties(target->device_json).indented();
  if (options.output.empty()) {
    fmt::print("{}", json);  // in every format: it is JSON
    return kOk;
  }
  const Status written = io::write_file(options.output, std::as_bytes(std::span(json)));
  return written.ok() ? kOk : report(written.error(), options.format);
}

}  // namespace
}  // namespace target_command

void add_target(CLI::App& app, Action& action) {
  using namespace target_command;
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("target", "List and show the GPUs to compile for");
  command->require_subcommand(0, 1);
  add_format(*command, options->format);
  command->callback([&action, options, command] {  // runs after the callback of a subcommand
    if (command->get_subcommands().empty()) action = [options] { return list(*options); };
  });

  CLI::App* listing = command->add_subcommand("list", "List the built-in targets");
  add_format(*listing, options->format);
  set_action(*listing, action, options, list);

  CLI::App* show = command->add_subcommand("show", "Print the device properties of a target");
  show->add_option("name", options->name, "Target name, or a file of device properties")
      ->type_name("NAME|FILE.json")
      ->required()
      ->check(CLI::Suggest(target_words({})))
      ->default_text("");
  add_format(*show, options->format);
  set_action(*show, action, options, print_properties);

  CLI::App* dump = command->add_subcommand(
      "dump", "Print the device properties of the local GPU, for use as --target FILE.json");
  dump->add_option("-o,--output", options->output, "File to write instead of standard output")
      ->type_name("FILE");
  add_cudnn(*dump, options->cudnn_folder);
  add_format(*dump, options->format);
  set_action(*dump, action, options, print_properties);
}

}  // namespace attn::tools
