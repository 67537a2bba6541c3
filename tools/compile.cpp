#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "compiler/driver/driver.h"
#include "compiler/driver/memory.h"
#include "tools/cached.h"
#include "tools/command.h"
#include "tools/compile_ranks.h"
#include "tools/compiled_file.h"
#include "tools/console.h"
#include "tools/ranks.h"
#include "tools/report.h"
#include "tools/spec.h"
#include "tools/target_option.h"
#include "tools/timed.h"

namespace attn::tools {
namespace compile_command {
namespace {

struct Options {
  std::string spec;
  bool recompiles = false;  // --recompile
  std::string plan;         // its value; else the SPEC of the command line
  std::string output;
  std::string target = "native";  // or several, separated by commas
  std::string direction;          // empty: both if the spec has a `grad` clause, else fwd
  std::string cudnn_folder;
  std::string lowering{planner::kAnyLowering};
  target::Rewrites rewrites;
  BuildLimits limits{};
  sema::Bindings bindings;
  Edits edits;
  bool keep_going = false;
  Tuning tuning;
  bool use_cache = false;
  RankOptions ranks;
  bool split_files = false;
  Format format = Format::text;
};

// The output is overwritten: refuses anything but a regular file, and names of hand-written files.
Status check_output(const Options& options) {
  const std::string& output = options.output;
  const std::vector<std::string> notes = {"name a plan file, as in -o NAME.attnplan"};
  const auto refuse = [&](const std::string& why) {
    return Error{ErrorCode::invalid_argument, fmt::format("-o {}: {}", output, why), notes};
  };
  if (output == "-") return refuse("a plan cannot be written to standard output");
  if (output.ends_with(".attn") || output.ends_with(".json")) {
    return refuse("this is a name for a spec or device properties, not for a plan");
  }
  std::error_code none;  // a path that does not exist is fine
  const auto status = std::filesystem::status(output, none);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return refuse("this exists and is not a regular file");
  }
  const std::filesystem::path folder = std::filesystem::path(output).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, none)) {
    return Error{ErrorCode::io,
                 fmt::format("-o {}: folder {} does not exist", output, folder.string())};
  }
  const std::string& input = options.plan.empty() ? options.spec : options.plan;
  return check_is_not_input(output, input, notes);
}

int usage_error(const Options& options, const std::string& message) {
  return report({ErrorCode::invalid_argument, message}, options.format);
}

// Names that commas separate. A file is one name, whatever is in it.
std::vector<std::string> names_of(const std::string& target) {
  std::error_code none;
  if (std::filesystem::is_regular_file(target, none)) return {target};
  std::vector<std::string> names = CLI::detail::split(target, ',');
  for (std::string& name : names) std::erase(name, ' ');
  if (target.ends_with(',')) names.emplace_back();
  return names;
}

// The targets, each of another compute capability.
Result<std::vector<plan::Target>> targets_of(const Options& options) {
  std::vector<plan::Target> targets;
  const std::vector<std::string> names = names_of(options.target);
  for (const std::string& name : names) {
    ATTN_ASSIGN(plan::Target target, find_target(name, options.cudnn_folder));
    const auto same = std::ranges::find(targets, target.sm, &plan::Target::sm);
    if (same != targets.end()) {
      const std::string& other = names[static_cast<std::size_t>(same - targets.begin())];
      return Error{ErrorCode::invalid_argument,
                   fmt::format("--target: {} and {} are both sm_{}", other, name, target.sm),
                   {"a plan file has the plans of one GPU of each compute capability"}};
    }
    targets.push_back(std::move(target));
  }
  return targets;
}

driver::CompileOptions compile_options(const Options& options, const plan::Target& target) {
  driver::CompileOptions result;
  result.target = target;
  result.worker = worker_options(options.cudnn_folder, options.limits);
  result.lowering = options.lowering;
  result.rewrites = options.rewrites;
  if (options.use_cache) {
    result.cached = open_cache(options.cudnn_folder);
  }
  set_autotune(result, options.tuning, options.target == "native" && options.ranks.ranks == 0,
               options.cudnn_folder);
  return result;
}

Result<std::vector<driver::Compiled>> compile_plans(const Options& options, const Spec& spec,
                                                    driver::CompileOptions how) {
  how.analyses = spec.analyses.get();
  const bool trains = options.direction.empty() && !spec.attention.gradients.empty();
  if (trains || options.direction == "both") {
    auto pair = driver::compile_pair(spec.attention, *spec.source, spec.bindings, how);
    if (pair.ok() || !trains || pair.error().code != ErrorCode::unsupported) return pair;
    Error error = pair.error();
    if (!error.message.starts_with("backward: ")) return error;
    error.notes.emplace_back(
        "the spec has a `grad` clause; use --direction fwd to compile only the forward");
    return error;
  }
  if (options.direction == "bwd") how.direction = plan::Direction::backward;
  ATTN_ASSIGN(driver::Compiled compiled,
              driver::compile(spec.attention, *spec.source, spec.bindings, how));
  return std::vector<driver::Compiled>{std::move(compiled)};
}

Error at_sizes(const Options& options, const sema::Bindings& variant, Error error) {
  const std::string words = driver::words_of(variant, options.bindings);
  if (!words.empty()) error.message = fmt::format("{}: {}", words, error.message);
  return error;
}

// The same of one of several targets.
Error at_target(const Options& options, const plan::Target& target, Error error) {
  if (names_of(options.target).size() > 1)
    error.message = fmt::format("for {}: {}", target.name, error.message);
  return error;
}

Format format_of_variants(const Options& options) {
  return options.keep_going ? Format::text : options.format;
}

// The specs of the variants without errors; the others join `failures` (--keep-going).
std::vector<Spec> analyze_each(const Options& options,
                               std::shared_ptr<const support::Source> source,
                               std::vector<Failure>& failures) {
  std::vector<Spec> specs;
  for (const sema::Bindings& variant : driver::variants(*source, options.bindings)) {
    SpecOutcome outcome = analyze_spec(source, variant, format_of_variants(options));
    if (outcome.spec) {
      specs.push_back(std::move(*outcome.spec));
    } else {
      failures.push_back({variant, at_sizes(options, variant, *outcome.error)});
    }
  }
  return specs;
}

// Skips duplicates: with Skv = 0, for example, all values of Hkv give the same plan.
void add(std::vector<driver::Compiled>& all, std::vector<driver::Compiled> more) {
  for (driver::Compiled& compiled : more) {
    const bool is_new = std::ranges::none_of(all, [&](const driver::Compiled& other) {
      return other.plan.signature == compiled.plan.signature;
    });
    if (is_new) all.push_back(std::move(compiled));
  }
}

int report_failures(const Options& options, const std::vector<Failure>& failures) {
  if (options.format == Format::json && options.keep_going) {
    print_json({{"error", error_json(failures.front().error, nullptr)},
                {"failed", failures_json(failures)}});
  }
  return worst_of(failures);
}

// Warns about plans that take much memory besides their tensors. An error with --deny warnings.
std::optional<Error> warn_of_memory(const Options& options, const Spec& spec,
                                    const std::vector<driver::Compiled>& plans) {
  diag::Sink sink(*spec.source);
  for (const driver::Compiled& compiled : plans) {
    driver::warn_of_memory(spec.attention, compiled.plan.program, plan::memory_of(compiled.plan),
                           sink);
  }
  print_diagnostics(diag::to_text(sink, error_paint()));
  return report_denied(sink, format_of_variants(options));
}

// What was compiled so far of a spec, for all of its sizes and targets.
class Compilation {
 public:
  Compilation(const Options& options, std::shared_ptr<const support::Source> source,
              std::vector<Failure> failures)
      : options_(options), source_(std::move(source)), failures_(std::move(failures)) {}

  // Compiles for one target. Returns an exit code if the command ends with it.
  std::optional<int> add(const std::vector<Spec>& specs, const plan::Target& target) {
    const driver::CompileOptions how = compile_options(options_, target);
    Progress progress("compile", specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const std::string sizes = driver::words_of(specs[i].bindings, options_.bindings);
      progress.show(i, sizes);
      tell_detail(fmt::format("compile `{}` {}", specs[i].attention.name, sizes));
      if (const auto ends = add(specs[i], how)) return ends;
    }
    return std::nullopt;
  }

  int finish() const {
    if (plans_.empty()) return report_failures(options_, failures_);
    return write_compiled(plans_, failures_, options_.output, options_.format);
  }

 private:
  std::optional<int> add(const Spec& spec, const driver::CompileOptions& how) {
    const auto placed = [&](const Error& error) {
      return at_target(options_, how.target, at_sizes(options_, spec.bindings, error));
    };
    auto compiled = compile_plans(options_, spec, how);
    if (!compiled.ok()) {
      const Error error = placed(compiled.error());
      if (!options_.keep_going) return report(error, options_.format, source_.get());
      tell(error_text(error, source_.get(), error_paint()));
      failures_.push_back({spec.bindings, error});
    } else if (const auto denied = warn_of_memory(options_, spec, *compiled)) {
      if (!options_.keep_going) return kSpecHasErrors;
      failures_.push_back({spec.bindings, placed(*denied)});
    } else {
      compile_command::add(plans_, std::move(*compiled));
    }
    return std::nullopt;
  }

  const Options& options_;
  std::shared_ptr<const support::Source> source_;
  std::vector<driver::Compiled> plans_;
  std::vector<Failure> failures_;
};

int compile_spec(const Options& options) {
  Result<support::Source> read = read_source(options.spec, options.edits);
  if (!read.ok()) return report(read.error(), options.format);
  const auto source = std::make_shared<const support::Source>(std::move(*read));
  std::vector<Failure> failures;
  const std::vector<Spec> specs = options.keep_going
                                      ? analyze_each(options, source, failures)
                                      : analyze_all_sizes(source, options.bindings, options.format);
  if (specs.empty())
    return options.keep_going ? report_failures(options, failures) : kSpecHasErrors;
  const Result<std::vector<plan::Target>> targets = targets_of(options);
  if (!targets.ok()) return report(targets.error(), options.format);
  Compilation compilation(options, source, std::move(failures));
  for (const plan::Target& target : *targets) {
    if (const auto ends = compilation.add(specs, target)) return *ends;
  }
  return compilation.finish();
}

// driver::compile_ranks, which tells how far it is.
Result<CompiledFamily> family_of(const Spec& spec, const Sharded& sharded,
                                 driver::RanksOptions options) {
  std::optional<Progress> progress;
  options.observer = [&](std::size_t part, std::size_t parts, const std::string& name) {
    if (!progress) progress.emplace("compile", parts);
    progress->show(part, fmt::format("part {}", part));
    tell_detail(fmt::format("compile `{}`", name));
  };
  return driver::compile_ranks(spec.attention, *spec.source, spec.bindings, sharded, options);
}

int compile_family(const Options& options) {
  const SpecOutcome outcome =
      read_spec(options.spec, options.bindings, options.format, {}, options.edits);
  if (!outcome.spec) return outcome.exit_code;
  const Spec& spec = *outcome.spec;
  const Result<plan::Target> target = find_target(options.target, options.cudnn_folder);
  if (!target.ok()) return report(target.error(), options.format, spec.source.get());
  driver::CompileOptions how = compile_options(options, *target);
  how.analyses = spec.analyses.get();
  const bool both = options.direction == "both" ||
                    (options.direction.empty() && !spec.attention.gradients.empty());
  const bool backward = options.direction == "bwd";
  const auto sharded = shard(spec, options.ranks, options.target, both || backward);
  if (!sharded.ok()) return report(sharded.error(), options.format, spec.source.get());
  if (backward) how.direction = plan::Direction::backward;
  const auto family = family_of(spec, **sharded, {how, both, options.split_files});
  if (!family.ok()) return report(family.error(), options.format, spec.source.get());
  const Status saved = driver::save(*family, options.output, options.split_files);
  if (!saved.ok()) return report(saved.error(), options.format);
  tell_doubt(family->plans.front().plan, options.output);
  if (options.format == Format::json) {
    print_json(to_json(*family, options.output, options.split_files));
  } else if (!is_quiet()) {
    Progress::clear();
    fmt::print("{}", to_text(*family, options.output, options.split_files));
  }
  return kOk;
}

// What makes no sense together with --ranks.
std::string conflict_of_ranks(const Options& options) {
  if (options.ranks.ranks == 0) return options.split_files ? "--split-files needs --ranks" : "";
  if (!options.plan.empty()) return "--ranks cannot be used with --recompile";
  if (options.keep_going) return "--keep-going cannot be used with --ranks";
  if (options.tuning.all) return "--autotune cannot be used with --ranks";
  if (options.target.find(',') != std::string::npos) return "--ranks takes one --target";
  return "";
}

// The programs to compile for a target: those of its compute capability, else of the first target.
plan::Bundle programs_for(const plan::Target& target, const plan::Bundle& old) {
  Result<plan::Bundle> same = plan::plans_for_device(old, target.sm);
  if (!same.ok()) same = plan::plans_for_device(old, old.plans.front().target.sm);
  return std::move(*same);
}

int recompile(const Options& options) {
  const Result<plan::Bundle> old = plan::load_bundle(options.plan);
  if (!old.ok()) return report(old.error(), options.format);
  const Result<std::vector<plan::Target>> targets = targets_of(options);
  if (!targets.ok()) return report(targets.error(), options.format);
  std::vector<driver::Compiled> plans;
  for (const plan::Target& target : *targets) {
    auto compiled = driver::recompile(programs_for(target, *old), compile_options(options, target));
    if (!compiled.ok()) {
      return report(at_target(options, target, compiled.error()), options.format,
                    source_of_plan(options.plan, old->plans.front()).get());
    }
    add(plans, std::move(*compiled));
  }
  return write_compiled(plans, {}, options.output, options.format);
}

// Takes, as `run` does, a plan file that is given apart from --recompile.
Options with_plan(const Options& given) {
  Options options = given;
  if (options.recompiles && options.plan.empty()) std::swap(options.plan, options.spec);
  return options;
}

int run(const Options& given) {
  const Options options = with_plan(given);
  if (options.recompiles && given.plan.empty() && !is_plan(options.plan)) {
    return usage_error(options, "--recompile needs PLAN, a plan file");
  }
  if (options.spec.empty() == options.plan.empty()) {
    return usage_error(options, "give either SPEC or --recompile PLAN");
  }
  if (!options.plan.empty() && !options.bindings.empty()) {
    return usage_error(options, "--bind cannot be used with --recompile: sizes come from the plan");
  }
  if (!options.plan.empty() && !options.edits.empty()) {
    return report(refused_of_plan(options.edits), options.format);
  }
  if (!options.plan.empty() && options.keep_going) {
    return usage_error(options, "--keep-going cannot be used with --recompile");
  }
  if (!options.plan.empty() && !options.direction.empty()) {
    return usage_error(options,
                       "--direction cannot be used with --recompile: it comes from the plan");
  }
  if (options.tuning.all && options.target != "native") {
    return usage_error(options, "--autotune measures on the local GPU and needs --target native");
  }
  const auto links = links_of(options.ranks);
  if (!links.ok()) return report(links.error(), options.format);
  if (const std::string conflict = conflict_of_ranks(options); !conflict.empty())
    return usage_error(options, conflict);
  if (const Status status = check_output(options); !status.ok()) {
    return report(status.error(), options.format);
  }
  if (options.ranks.ranks > 0) return compile_family(options);
  return options.plan.empty() ? compile_spec(options) : recompile(options);
}

}  // namespace
}  // namespace compile_command

void add_compile(CLI::App& app, Action& action) {
  using namespace compile_command;
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("compile", "Compile a spec into a plan file; needs no GPU");
  command->add_option("spec", options->spec, "File (.attn, .attn.json), or - for standard input")
      ->type_name("SPEC");
  command
      ->add_option("-o,--output", options->output,
                   "Plan file to write (.attnplan); holds all plans of a spec with several sizes")
      ->type_name("FILE")
      ->required();
  add_targets_option(*command, options->target);
  add_bindings(*command, "NAME=VALUE", options->bindings,
               "Set a dimension or parameter of the spec (repeatable); several sizes, "
               "as in Sq=1024,2048, give one plan each");
  add_edits(*command, options->edits);
  command->add_flag("--keep-going", options->keep_going,
                    "With several sizes, write the plans that compile even if others fail");
  add_direction(*command, options->direction,
                "What to compile (default: both if the spec has a `grad` clause, else fwd)");
  const CLI::callback_t recompile = [options](const std::vector<std::string>& values) {
    options->recompiles = true;
    options->plan = values.front();
    return true;
  };
  command->add_option("--recompile", recompile, "Recompile the programs of this plan file")
      ->type_name("PLAN")
      ->expected(0, 1);
  add_autotune(*command, options->tuning);
  add_ranks(*command, options->ranks);
  add_in(*command, options->ranks.inputs);
  command->add_flag("--split-files", options->split_files,
                    "With --ranks: a file for each rank, FILE.0 and so on, with its plans alone");
  add_strategy(*command, options->lowering, options->rewrites);
  add_build_limits(*command, options->limits);
  add_cache_option(*command, options->use_cache);
  add_deny(*command);
  add_cudnn(*command, options->cudnn_folder);
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
