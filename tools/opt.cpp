#include <fmt/format.h>

#include <cstdio>

#include "compiler/rewrite/pass.h"
#include "runtime/targets/targets.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/report.h"
#include "tools/spec.h"
#include "tools/target_option.h"

namespace attn::tools {
namespace opt_command {
namespace {

struct Options {
  std::string path;
  sema::Bindings bindings;
  std::vector<std::string> passes;
  std::string target = "h200";
  bool backward = false;
  bool each = false;
  bool time = false;
  Format format = Format::text;
};

constexpr std::string_view kIrSuffix = ".ir";

Result<ir::Attention> read_ir(const std::string& path) {
  ATTN_ASSIGN(const support::Source source, support::Source::read(path));
  return ir::parse(source.text());
}

// Prints the IR after each pass, or how long each took; with JSON, adds them to `passes`.
target::PassObserver observer_of(const Options& options, Json& passes) {
  return [&options, &passes](const target::PassRun& run) {
    if (options.format == Format::json) {
      passes.push_back({{"pass", run.pass}, {"ms", run.milliseconds}});
      if (options.each) passes.back()["ir"] = ir::to_text(run.after);
      return;
    }
    if (options.time) tell(fmt::format("{:<14} {:.3f} ms\n", run.pass, run.milliseconds));
    if (options.each) fmt::print("// after {}\n{}", run.pass, ir::to_text(run.after));
  };
}

int optimise(const Options& options, ir::Attention attention) {
  const auto target = targets::find_target(options.target);
  if (!target.ok()) return report(target.error(), options.format);
  Json passes = Json::array();
  const target::PassObserver observer = observer_of(options, passes);
  target::Context context{target::gpu_of(*target)};
  context.observer = &observer;
  if (options.backward) context.direction = plan::Direction::backward;
  for (const std::string& name : options.passes) {
    masks::Effort effort;
    attention = rewrite::run_pass(name, attention, context, effort);
  }
  if (options.format == Format::json) {
    print_json({{"passes", passes}, {"ir", ir::to_text(attention)}});
  } else if (!options.each || options.passes.empty()) {
    fmt::print("{}", ir::to_text(attention));
  }
  return kOk;
}

int run(const Options& options) {
  if (options.path.ends_with(kIrSuffix)) {
    Result<ir::Attention> attention = read_ir(options.path);
    if (!attention.ok()) return report(attention.error(), options.format);
    const Status verified = ir::verify(*attention);
    if (!verified.ok()) return report(verified.error(), options.format);
    return optimise(options, std::move(*attention));
  }
  SpecOutcome outcome = read_spec(options.path, options.bindings, options.format);
  if (!outcome.spec) return outcome.exit_code;
  return optimise(options, std::move(outcome.spec->attention));
}

}  // namespace
}  // namespace opt_command

void add_opt(CLI::App& app, Action& action) {
  using namespace opt_command;
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("opt", "Run passes on the IR, and print it");
  command
      ->add_option("file", options->path,
                   "IR text (.ir), or a spec (.attn, .attn.json, or - for standard input)")
      ->type_name("FILE.ir|SPEC")
      ->required();
  std::vector<std::string> names;
  for (const rewrite::Pass& pass : rewrite::all_passes()) names.emplace_back(pass.name);
  command
      ->add_option("--pass", options->passes,
                   fmt::format("Passes to run, in this order ({})", fmt::join(names, ", ")))
      ->type_name("NAME[,NAME]")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(names));
  command->add_flag("--each", options->each, "Print the IR after each pass");
  command->add_flag("--time", options->time, "Print the time of each pass to standard error");
  command->add_flag("--backward", options->backward, "Run passes as for the backward");
  command->add_option("--target", options->target, "GPU that passes decide for")
      ->type_name("NAME|FILE.json")
      ->check(CLI::Suggest(target_words({})));
  add_bind(*command, options->bindings);
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
