#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>

#include "runtime/cudnn/library.h"
#include "tools/calibrated.h"
#include "tools/command.h"
#include "tools/compare.h"
#include "tools/compiled_ahead.h"
#include "tools/console.h"
#include "tools/execution.h"
#include "tools/inputs.h"
#include "tools/kept.h"
#include "tools/plans.h"
#include "tools/report.h"
#include "tools/shapes.h"
#include "tools/spec.h"
#include "tools/target_option.h"
#include "tools/words.h"

namespace attn::tools {
namespace verify_command {
namespace {

ShapeSet shape_set(std::string_view name) {
  if (name == "own") return ShapeSet::own;
  return name == "all" ? ShapeSet::all : ShapeSet::scaled;
}

struct Options {
  std::vector<std::string> specs;
  std::string folder;
  std::string shapes = "scaled";
  std::string cudnn_folder;
  std::string lowering{planner::kAnyLowering};
  target::Rewrites rewrites;
  BuildLimits limits{};
  sema::Bindings bindings;
  InputTexts inputs;
  bool gradients = false;
  int repeat = 1;
  unsigned jobs = 0;
  bool nan_past_lengths = false;
  Format format = Format::text;

  Needs needs() const { return gradients ? Needs::gradients : Needs::forward; }
  Unused unused() const { return nan_past_lengths ? Unused::anything : Unused::finite; }
};

// Result of --repeat.
struct Repetition {
  int count = 1;
  bool demanded = false;  // the spec is `deterministic`
  std::map<std::string, int> deviations;

  bool same_bits() const {
    return std::ranges::all_of(deviations, [](const auto& each) { return each.second == 0; });
  }
  bool agrees() const { return !demanded || same_bits(); }
};

// One spec at one shape, or a file that could not be read as a spec.
struct Case {
  std::string spec;
  std::string shape;  // empty if the spec could not be read
  sema::Bindings bindings;
  std::vector<std::pair<std::string, std::string>> origins;
  std::vector<Comparison> comparisons;
  std::optional<Repetition> repetition;  // with --repeat
  std::optional<Error> error;            // instead of comparisons

  int exit_code() const {
    if (error) return attn::exit_code(error->code);
    const bool agrees = std::ranges::all_of(comparisons, &Comparison::agrees);
    return agrees && (!repetition || repetition->agrees()) ? kOk : kMismatch;
  }
};

std::string bindings_text(const sema::Bindings& bindings) {
  std::string text;
  for (const auto& [name, value] : bindings) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  }
  return text;
}

// Inputs that are not random: those that the user may want to change. Not all scales of 8-bit
// attention that are the spec's.
std::string unusual_origins(const Case& result) {
  std::string text;
  for (const auto& [name, origin] : result.origins) {
    if (origin == kDefault && ir::is_scale(name)) continue;
    if (origin != "random") text += fmt::format(" {}={}", name, origin);
  }
  return text;
}

std::string to_text(const Repetition& repetition) {
  if (repetition.same_bits()) return fmt::format("bitwise equal over {} runs", repetition.count);
  std::string text;
  for (const auto& [name, deviations] : repetition.deviations) {
    if (deviations == 0) continue;
    text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", name, deviations);
  }
  return fmt::format("{}bits differ from the first of {} runs: {}",
                     repetition.demanded ? "MISMATCH: not deterministic, " : "", repetition.count,
                     text);
}

void print_case(const Case& result) {
  if (result.shape.empty()) {
    fmt::print("{}\n", result.spec);
  } else {
    fmt::print("{}  {} ({}){}\n", result.spec, result.shape, bindings_text(result.bindings),
               unusual_origins(result));
  }
  if (result.error) {
    const bool refused = result.error->code == ErrorCode::unsupported;
    fmt::print("  {}: {}\n", refused ? "not supported" : "failed", result.error->message);
    for (const std::string& note : result.error->notes) fmt::print("    {}\n", note);
  }
  std::size_t width = 4;
  for (const Comparison& each : result.comparisons) width = std::max(width, each.name.size());
  for (const Comparison& each : result.comparisons) {
    fmt::print(
        "  {:<{}} relative L2 {:.2e}{}{}  max abs {:.2e}  {}\n", each.name, width, each.relative_l2,
        each.plain_l2 ? fmt::format(" (plain {:.2e})", *each.plain_l2) : "",
        each.worst_row ? fmt::format("  worst row {:.2e}", *each.worst_row) : "", each.max_abs,
        each.agrees() ? output_paint()(support::Style::good, "ok")
                      : output_paint()(support::Style::error, "MISMATCH: " + each.why));
  }
  if (result.repetition) fmt::print("  {}\n", to_text(*result.repetition));
}

Json to_json(const Repetition& repetition) {
  return {{"runs", repetition.count},
          {"deterministic", repetition.demanded},
          {"deviations", repetition.deviations},
          {"ok", repetition.agrees()}};
}

Json case_json(const Case& result) {
  Json json = {{"spec", result.spec}, {"shape", nullptr}, {"bindings", result.bindings}};
  if (!result.shape.empty()) json["shape"] = result.shape;
  for (const auto& [name, origin] : result.origins) json["inputs"][name] = origin;
  json["ok"] = result.exit_code() == kOk;
  if (result.error) json["error"] = error_json(*result.error, nullptr);
  for (const Comparison& each : result.comparisons) {
    json["outputs"][each.name] = {{"relative_l2", each.relative_l2},
                                  {"max_abs", each.max_abs},
                                  {"measure", each.measure},
                                  {"bound", each.bound},
                                  {"ok", each.agrees()},
                                  {"why", each.why}};
    if (each.plain_l2 && std::isfinite(*each.plain_l2)) {
      json["outputs"][each.name]["plain_relative_l2"] = *each.plain_l2;
    }
    if (!each.worst_row) continue;
    json["outputs"][each.name]["worst_row"] = *each.worst_row;
    json["outputs"][each.name]["row_bound"] = each.row_bound;
  }
  if (result.repetition) json["repetition"] = to_json(*result.repetition);
  return json;
}

// A case that is not verified yet: without a spec its error is known.
struct Prepared {
  Case result;
  std::optional<Spec> spec{};
};

class Verification {
 public:
  Verification(const Options& options, plan::Target target)
      : options_(options), target_(std::move(target)) {}

  // Prepares the cases of a spec.
  void add_spec(const std::string& path) {
    SpecOutcome outcome = read_spec(path, options_.bindings, Format::text, options_.inputs);
    if (!outcome.spec) {
      prepared_.push_back({{path, "", options_.bindings, {}, {}, {}, outcome.error}});
      return;
    }
    for (const Shape& shape : shapes_of(*outcome.spec->source, outcome.spec->attention,
                                        options_.bindings, shape_set(options_.shapes))) {
      prepared_.push_back(prepared(path, outcome.spec->source, shape));
    }
  }

  // Verifies the cases in order, while the plans of later ones are compiled in `jobs` threads.
  void run(unsigned jobs) {
    CompiledAhead plans(prepared_.size(), jobs, [this](std::size_t i) -> Result<Plans> {
      if (!prepared_[i].spec) return *prepared_[i].result.error;
      return compile_plans(*prepared_[i].spec, compile_options(), options_.gradients);
    });
    Progress progress("verify", prepared_.size());
    for (std::size_t i = 0; i < prepared_.size(); ++i) {
      Case result = prepared_[i].result;
      progress.show(i, fmt::format("{} {}", result.spec, result.shape));
      if (prepared_[i].spec) {
        const auto compiled = [&] { return plans.take(i); };
        if (const Status status = run_case(*prepared_[i].spec, compiled, result); !status.ok()) {
          result.error = status.error();
        }
      }
      keep(std::move(result));
    }
  }

  const std::vector<Case>& cases() const { return cases_; }

 private:
  Prepared prepared(const std::string& path, std::shared_ptr<const support::Source> source,
                    const Shape& shape) const {
    Prepared made;
    made.result.spec = path;
    made.result.shape = shape.name;
    made.result.bindings = shape.bindings;
    SpecOutcome outcome =
        analyze_spec(std::move(source), shape.bindings, Format::text, options_.inputs);
    if (outcome.spec) {
      made.spec = std::move(outcome.spec);
      made.spec->attention = compared(std::move(made.spec->attention));
    } else {
      made.result.error = outcome.error;
      made.result.error->message += " with these sizes";
    }
    return made;
  }

  void keep(Case result) {
    Progress::clear();
    const bool tells = !is_quiet() || result.exit_code() != kOk;
    if (options_.format == Format::text && tells) print_case(result);
    if (options_.format == Format::json_lines) print_json_line(case_json(result));
    std::fflush(stdout);
    cases_.push_back(std::move(result));
  }

  template <typename Compiled>
  Status run_case(const Spec& spec, const Compiled& compiled, Case& result) const {
    const ir::Attention& attention = spec.attention;
    ATTN_ASSIGN(Inputs inputs,
                make_inputs(attention, options_.inputs, Missing::pattern, options_.needs()));
    std::set<std::string> given = written_scales(*spec.source);
    for (const auto& [name, text] : options_.inputs) given.insert(name);
    ATTN_RETURN_IF_ERROR(calibrate(attention, given, options_.needs(), inputs));
    result.origins = inputs.origins;
    for (const std::string& text : inputs.warnings) tell_warning(text);
    ATTN_ASSIGN(const Plans plans, compiled());
    ATTN_ASSIGN(const Repeated found, repeat_on_device(plans, inputs.values, options_.cudnn_folder,
                                                       options_.repeat, options_.unused()));
    ATTN_ASSIGN(const ReferenceGradients reference,
                expected(attention, plans.forward, inputs.values));
    result.comparisons =
        compare(found.outputs, reference.outputs, Types(attention), reference.sizes);
    if (options_.repeat > 1) {
      result.repetition = Repetition{options_.repeat, attention.deterministic, found.deviations};
    }
    return {};
  }

  // Adds lse unless there are other statistics: it depends on every score, whatever v is. (lse of a
  // single row is not deterministic.) Random dropout also needs o, to find the kept weights or to
  // compare them.
  ir::Attention compared(ir::Attention attention) const {
    if (options_.gradients) return driver::training_forward(std::move(attention));
    const bool varies = attention.deterministic && attention.dims[ir::Dim::Sq] == 1;
    attention.wants_o |= attention.dropout.has_value();
    attention.wants_lse |= !attention.wants_more_than_lse() && !varies && !attention.is_pointwise();
    return attention;
  }

  driver::CompileOptions compile_options() const {
    driver::CompileOptions how;
    how.target = target_;
    how.worker = worker_options(options_.cudnn_folder, options_.limits);
    how.lowering = options_.lowering;
    how.rewrites = options_.rewrites;
    return how;
  }

  Result<ReferenceGradients> expected(const ir::Attention& attention, const plan::Plan& forward,
                                      const reference::Inputs& inputs) const {
    if (!has_unknown_numbers(forward, attention)) return by_reference(attention, inputs);
    ATTN_ASSIGN(io::HostTensor kept,
                kept_on_device(forward, attention, inputs, options_.cudnn_folder));
    return by_reference(with_kept(attention), with_kept(inputs, std::move(kept)));
  }

  Result<ReferenceGradients> by_reference(const ir::Attention& attention,
                                          const reference::Inputs& inputs) const {
    reference::Options how;
    how.sizes = true;
    if (options_.gradients) return run_reference_gradients(attention, inputs, true, how);
    ATTN_ASSIGN(Outputs outputs, run_reference(attention, inputs, how));
    return ReferenceGradients{std::move(outputs), {}};
  }

  const Options& options_;
  plan::Target target_;
  std::vector<Prepared> prepared_;
  std::vector<Case> cases_;
};

// Prints the totals. Returns the largest exit code of the cases.
int print_totals(const Options& options, const plan::Target& target, const Verification& verified) {
  int worst = kOk;
  Json cases = Json::array();
  std::size_t agreeing = 0;
  for (const Case& result : verified.cases()) {
    cases.push_back(case_json(result));
    agreeing += result.exit_code() == kOk ? 1 : 0;
    worst = std::max(worst, result.exit_code());
  }
  if (options.format == Format::json) {
    print_json({{"device", target.name}, {"cases", cases}, {"agreeing", agreeing}});
  } else if (options.format == Format::json_lines) {
    print_json_line({{"device", target.name}, {"agreeing", agreeing}});
  } else {
    put_summary(fmt::format("{} of {} cases agree with the reference on {}\n", agreeing,
                            verified.cases().size(), target.name));
  }
  return worst;
}

int run(const Options& options) {
  const auto paths = spec_paths(options.specs, options.folder);
  if (!paths.ok()) return report(paths.error(), options.format);
  const Result<plan::Target> target = native_target(options.cudnn_folder);
  if (!target.ok()) {
    return report(needs_device("verify", target.error()), options.format);
  }
  Verification verification(options, *target);
  for (const std::string& path : *paths) verification.add_spec(path);
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  verification.run(options.jobs != 0 ? options.jobs : cores);
  return print_totals(options, *target, verification);
}

}  // namespace
}  // namespace verify_command

void add_verify(CLI::App& app, Action& action) {
  using namespace verify_command;
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("verify", "Compare plans on the local GPU with the CPU reference");
  command->add_option("specs", options->specs, "Files (.attn, .attn.json)")->type_name("SPEC...");
  command->add_option("--all", options->folder, "Every spec in this folder")->type_name("DIR");
  command
      ->add_option(
          "--shapes", options->shapes,
          "Sizes to test: the spec's, scaled down (scaled) or as they are (own); all: scaled "
          "ones, odd ones and a single row")
      ->type_name("NAME")
      ->check(CLI::IsMember({"scaled", "own", "all"}));
  add_bind(*command, options->bindings);
  add_in(*command, options->inputs);
  command->add_flag("--grad", options->gradients, "Also verify the gradients of sum(o * do)");
  command
      ->add_option(
          "--repeat", options->repeat,
          "Execute N times and compare bits; they must be equal if the spec is `deterministic`")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  command
      ->add_option("--jobs", options->jobs,
                   "Number of plans that are compiled at once; 0: as many as there are cores")
      ->type_name("N");
  command->add_flag(
      "--nan-past-lengths", options->nan_past_lengths,
      "Fill rows past the lengths, and memory and entries of page tables that are not in "
      "use, with NaN and other extremes");
  add_strategy(*command, options->lowering, options->rewrites);
  add_deny(*command);
  add_build_limits(*command, options->limits);
  add_cudnn(*command, options->cudnn_folder);
  add_format(*command, options->format, true);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
